/** How a chat is streamed to the page: as the AI SDK reads it, but not all that has come in one breath. */

import '../no_eval';
import { DefaultChatTransport, type UIMessageChunk } from 'ai';
import type { Message } from '../api/types';

/** So long is read at a time. Then keys are taken and what there is is painted. */
const BREATH_MS = 8;

export class ChatTransport extends DefaultChatTransport<Message> {
  protected override processResponseStream(stream: ReadableStream<Uint8Array<ArrayBufferLike>>): ReadableStream<UIMessageChunk> {
    return super.processResponseStream(stream).pipeThrough(breathing());
  }
}

/** Whatever is there already goes through promises alone, which nothing comes between: a page that fell behind would not answer until it has caught up. */
export function breathing<T>(): TransformStream<T, T> {
  let since = performance.now();
  return new TransformStream({
    async transform(chunk, controller) {
      if (performance.now() - since >= BREATH_MS) {
        await nextTask();
        since = performance.now();
      }
      controller.enqueue(chunk);
    },
  });
}

/** A timer would wait 4 ms each time, and a second in a tab that is not seen. */
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
