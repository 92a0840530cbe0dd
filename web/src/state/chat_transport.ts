/** The AI SDK's chat transport, with pauses so that a large backlog does not block the page. */

import '../no_eval';
import { DefaultChatTransport, type UIMessageChunk } from 'ai';
import type { Message } from '../api/types';

/** Time to process chunks before yielding to input and painting. */
const SLICE_MS = 8;

export class ChatTransport extends DefaultChatTransport<Message> {
  protected override processResponseStream(stream: ReadableStream<Uint8Array<ArrayBufferLike>>): ReadableStream<UIMessageChunk> {
    return super.processResponseStream(stream).pipeThrough(yielding());
  }
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
