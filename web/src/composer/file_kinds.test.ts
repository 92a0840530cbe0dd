import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { ModelListing } from '../api/types';
import { contentOf, findUnsupportedFile } from './file_kinds';

interface Case {
  name: string;
  base64: string;
  claimed: string;
  media_type: string;
  text: boolean;
  whole: boolean;
}

const corpus = JSON.parse(readFileSync('../tests/corpora/file_kinds.json', 'utf8')) as Case[];

test.each(corpus)('$name has the type that the server detects', ({ base64, claimed, media_type, text, whole }) => {
  expect(contentOf(Uint8Array.from(Buffer.from(base64, 'base64')), claimed)).toEqual({ mediaType: media_type, isText: text, whole });
});

test('an unsupported file is named, with the accepted types', async () => {
  const model = { id: 'acme/one', files: ['image/*'] } as ModelListing;
  const song = new File([Uint8Array.from([73, 68, 51, 0])], 'song.mp3', { type: 'audio/mpeg' });
  const page = new File([Buffer.from('%PDF-1.7\n%%EOF')], 'a.pdf', { type: 'application/pdf' });
  expect(await findUnsupportedFile([new File(['hi'], 'a.txt'), song], model)).toBe(
    '“song.mp3” (audio/mpeg) cannot be sent to acme/one, which accepts text, image/*. Remove the file, convert it, or choose another model.',
  );
  expect(await findUnsupportedFile([page], { ...model, files: ['application/pdf'] })).toBe(null);
  expect(await findUnsupportedFile([song], undefined)).toBe(null);
});
