/** Reads a response body up to a size limit. */

import { BadAnswer } from './problem.js';

/** Far above the export of any session; a larger body is taken as endless. */
const MAX_BYTES = 1024 * 1024 * 1024;

export async function readBody(response: Response, maxBytes = MAX_BYTES): Promise<Blob> {
  if (!response.body) return response.blob();
  const reader = response.body.getReader();
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(pieces, { type: response.headers.get('content-type') ?? '' });
      size += value.length;
      if (size > maxBytes) throw new BadAnswer('the response is too large');
      pieces.push(value as Uint8Array<ArrayBuffer>);
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
