/** Server-sent events read with fetch, since EventSource cannot send the token. */

import { BadAnswer } from './problem.js';

/** Far above the size of any clew event; a larger one is taken as endless. */
const MAX_EVENT_CHARS = 64 * 1024 * 1024;

export interface ServerEvent {
  id: string | null;
  data: string;
}

/** Yield each event. `onData` is called for everything received, comments included. */
export async function* readEvents(body: ReadableStream<Uint8Array>, onData: () => void = () => undefined, maxChars = MAX_EVENT_CHARS): AsyncGenerator<ServerEvent> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let data: string[] = [];
  let id: string | null = null;
  // The pieces of an unfinished line, joined once at its end.
  let partial: string[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onData();
      const lines = decoder.decode(value, { stream: true }).split('\n');
      const rest = lines.pop() ?? '';
      for (const ending of lines) {
        const line = [...partial, ending].join('').replace(/\r$/, '');
        partial = [];
        size += ending.length;
        if (line !== '') {
          if (line.startsWith('data:')) data.push(line.slice(line.startsWith('data: ') ? 6 : 5));
          if (line.startsWith('id:')) id = line.slice(line.startsWith('id: ') ? 4 : 3);
          continue;
        }
        if (data.length) yield { id, data: data.join('\n') };
        data = [];
        id = null;
        size = 0;
      }
      if (rest) partial.push(rest);
      size += rest.length;
      if (size > maxChars) throw new BadAnswer('a stream event is too large');
    }
  } finally {
    // The reader may have failed; that error already reaches the caller.
    reader.cancel().catch(() => undefined);
  }
}
