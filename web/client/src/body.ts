/** The body of an answer, as long as it is one that ends. */

import { BadAnswer } from './problem.js';

/** Far above what is exported of any session; whoever sends more does not stop. */
const LARGEST = 1024 * 1024 * 1024;

export async function readBody(response: Response, largest = LARGEST): Promise<Blob> {
  if (!response.body) return response.blob();
  const reader = response.body.getReader();
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return new Blob(pieces, { type: response.headers.get('content-type') ?? '' });
      size += value.length;
      if (size > largest) throw new BadAnswer('its answer has no end');
      pieces.push(value as Uint8Array<ArrayBuffer>);
    }
  } finally {
    reader.cancel().catch(() => undefined);
  }
}
