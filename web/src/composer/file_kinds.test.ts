import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { ModelListing } from '../api/types';
import { contentOf, unfitFile } from './file_kinds';

interface Case {
  name: string;
  base64: string;
  claimed: string;
  media_type: string;
  text: boolean;
  whole: boolean;
}

const corpus = JSON.parse(readFileSync('../tests/corpora/file_kinds.json', 'utf8')) as Case[];

test.each(corpus)('$name is what the server takes it for', ({ base64, claimed, media_type, text, whole }) => {
  expect(contentOf(Uint8Array.from(Buffer.from(base64, 'base64')), claimed)).toEqual({ mediaType: media_type, isText: text, whole });
});

test('a file that a model does not take is named with what it takes', async () => {
  const model = { id: 'acme/one', files: ['image/*'] } as ModelListing;
  const song = new File([Uint8Array.from([73, 68, 51, 0])], 'song.mp3', { type: 'audio/mpeg' });
  const page = new File([Buffer.from('%PDF-1.7\n%%EOF')], 'a.pdf', { type: 'application/pdf' });
  expect(await unfitFile([new File(['hi'], 'a.txt'), song], model)).toBe(
    '“song.mp3” (audio/mpeg) cannot be sent to acme/one, which takes text, image/*. Leave the file out, turn it into one of these, or choose another model.',
  );
  expect(await unfitFile([page], { ...model, files: ['application/pdf'] })).toBe(null);
  expect(await unfitFile([song], undefined)).toBe(null);
});
