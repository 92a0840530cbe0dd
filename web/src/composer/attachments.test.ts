import { expect, test } from 'vitest';
import { admit, asPart, mediaType } from './attachments';

const MB = 1024 * 1024;
const file = (name: string, size: number) => ({ name, size });

test('files that fit are accepted', () => {
  expect(admit([], [file('a', 1), file('b', 10 * MB)])).toEqual({ accepted: [file('a', 1), file('b', 10 * MB)], refused: null });
});

test('a file that is too large is named', () => {
  expect(admit([], [file('big.bin', 11 * MB), file('a', 1)])).toEqual({
    accepted: [file('a', 1)],
    refused: '“big.bin” is 11.0 MB; the limit is 10 MB per file.',
  });
});

test('an eleventh file is rejected', () => {
  const attached = Array.from({ length: 9 }, (_, index) => file(String(index), 1));
  expect(admit(attached, [file('a', 1), file('b', 1), file('c', 1)])).toEqual({
    accepted: [file('a', 1)],
    refused: 'At most 10 files per message; 2 files not attached.',
  });
});

test('files count together with those already attached', () => {
  expect(admit([file('a', 10 * MB), file('b', 6 * MB)], [file('c', 5 * MB), file('d', 4 * MB)])).toEqual({
    accepted: [file('d', 4 * MB)],
    refused: 'At most 20 MB of files per message; 1 file not attached.',
  });
});

test('a media type loses its parameters, and a file without one is bytes', () => {
  expect(mediaType({ type: 'text/plain;charset=utf-8' })).toBe('text/plain');
  expect(mediaType({ type: '' })).toBe('application/octet-stream');
});

test('a file becomes a part with its bytes', async () => {
  expect(await asPart(new File(['thread'], 'a.txt', { type: 'text/plain' }))).toEqual({
    type: 'file',
    mediaType: 'text/plain',
    filename: 'a.txt',
    url: 'data:text/plain;base64,dGhyZWFk',
  });
});
