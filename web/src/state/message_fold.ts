/** Builds one message from the chunks of a stream, which may come over several connections. */

import '../no_eval';
import type { Chunk } from '@clew/client';
import { AbstractChat, type ChatState, type UIMessageChunk } from 'ai';
import type { Message } from '../api/types';

/** Minimum interval between two versions of the message. */
const SHOW_INTERVAL_MS = 40;
/** Time to process chunks before yielding to input and painting. */
const SLICE_MS = 8;
/** A transient chunk of the page's own: what came before it is applied when it arrives. */
const CAUGHT_UP = 'data-caught-up';

/** The AI SDK's reducer, without its requests: one stream is one message. */
class Reducer extends AbstractChat<Message> {
  constructor(stream: ReadableStream<UIMessageChunk>, onMessage: (message: Message) => void, onCaughtUp: () => void) {
    // It keeps no messages: each version of the message is pushed.
    const state: ChatState<Message> = {
      status: 'ready',
      error: undefined,
      messages: [],
      pushMessage: onMessage,
      popMessage: () => undefined,
      replaceMessage: (_, message) => onMessage(message),
      snapshot: (value) => value,
    };
    const sendMessages = () => Promise.reject(new Error('a fold sends nothing'));
    super({ state, transport: { sendMessages, reconnectToStream: async () => stream }, onData: ({ type }) => type === CAUGHT_UP && onCaughtUp() });
  }
}

/**
 * The first chunks may repeat what is shown already, so nothing is shown before `catchUp`: the message on the page never
 * becomes shorter.
 */
export class MessageFold {
  private readonly writer: WritableStreamDefaultWriter<UIMessageChunk>;
  private readonly reducer: Reducer;
  private readonly reduced: Promise<void>;
  private message: Message | null = null;
  private visibility: 'catching up' | 'shown' | 'dropped' = 'catching up';
  private timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly show: (message: Message) => void) {
    const { readable, writable } = new TransformStream<UIMessageChunk, UIMessageChunk>();
    this.writer = writable.getWriter();
    this.writer.closed.catch(() => undefined); // Reported by `add` and `end`.
    this.reducer = new Reducer(readable.pipeThrough(yielding()), this.onMessage, this.onCaughtUp);
    this.reduced = this.reducer.resumeStream();
  }

  /** Resolve when the chunk is taken, soon or when the page has time for it. */
  add(chunk: Chunk): Promise<void> {
    return this.writer.write(chunk as UIMessageChunk);
  }

  /** Show the message, as of the chunks added so far, and each later version. */
  async catchUp(): Promise<void> {
    if (this.visibility === 'catching up') await this.add({ type: CAUGHT_UP, transient: true, data: null });
  }

  /** Resolve when all chunks are applied and shown. */
  async end(): Promise<void> {
    await this.writer.close();
    await this.reduced;
    if (this.reducer.error) throw this.reducer.error;
    this.onCaughtUp();
    this.showNow();
  }

  /** Show no further version. */
  drop(): void {
    this.visibility = 'dropped';
    clearTimeout(this.timer);
    this.writer.abort(new DOMException('dropped', 'AbortError')).catch(() => undefined);
  }

  private readonly onCaughtUp = (): void => {
    if (this.visibility !== 'catching up') return;
    this.visibility = 'shown';
    this.showNow();
  };

  private readonly onMessage = (message: Message): void => {
    this.message = message;
    if (this.visibility === 'shown') this.timer ??= setTimeout(this.showNow, SHOW_INTERVAL_MS);
  };

  private readonly showNow = (): void => {
    clearTimeout(this.timer);
    this.timer = undefined;
    // The reducer goes on changing its message.
    if (this.message && this.visibility === 'shown') this.show({ ...this.message, parts: this.message.parts.map((part) => ({ ...part })) });
  };
}

/** Yield to the event loop regularly. Buffered chunks are processed in microtasks alone, so a page that fell behind would freeze until it has caught up. */
export function yielding<T>(): TransformStream<T, T> {
  let since = performance.now();
  return new TransformStream({
    async transform(chunk, controller) {
      if (performance.now() - since >= SLICE_MS) {
        await nextTask();
        since = performance.now();
      }
      controller.enqueue(chunk);
    },
  });
}

/** Unlike a timer, not delayed by 4 ms, or by a second in a hidden tab. */
function nextTask(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(0);
  });
}
