import { expect, test } from 'vitest';
import { admit, asPart, mediaType } from './attachments';

const MB = 1024 * 1024;
const file = (name: string, size: number) => ({ name, size });

test('files that fit are taken', () => {
  expect(admit([], [file('a', 1), file('b', 10 * MB)])).toEqual({ taken: [file('a', 1), file('b', 10 * MB)], refused: null });
});

test('a file that is too large is named', () => {
  expect(admit([], [file('big.bin', 11 * MB), file('a', 1)])).toEqual({
    taken: [file('a', 1)],
    refused: '“big.bin” has 11.0 MB; a file may have at most 10 MB.',
  });
});

test('an eleventh file is left out', () => {
  const held = Array.from({ length: 9 }, (_, index) => file(String(index), 1));
  expect(admit(held, [file('a', 1), file('b', 1), file('c', 1)])).toEqual({
    taken: [file('a', 1)],
    refused: 'A message takes at most 10 files; 2 files left out.',
  });
});

test('files count together with those that are there', () => {
  expect(admit([file('a', 10 * MB), file('b', 6 * MB)], [file('c', 5 * MB), file('d', 4 * MB)])).toEqual({
    taken: [file('d', 4 * MB)],
    refused: 'The files of a message may have 20 MB together; 1 file left out.',
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
