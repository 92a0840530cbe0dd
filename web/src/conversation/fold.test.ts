import { expect, test } from 'vitest';
import { fold } from './fold';

const lines = (count: number) => Array.from({ length: count }, (_, index) => `line ${index + 1}`).join('\n');

test('short text is shown whole, without the empty lines at its end', () => {
  expect(fold('a\nb\n\n')).toEqual({ shown: 'a\nb', lines: 2, folded: false });
  expect(fold('')).toEqual({ shown: '', lines: 0, folded: false });
});

test('long text is cut after its first lines', () => {
  expect(fold(lines(60))).toEqual({ shown: lines(20), lines: 60, folded: true });
});

test('a button is no shorter than the two lines it would hide', () => {
  expect(fold(lines(22)).folded).toBe(false);
  expect(fold(lines(23)).folded).toBe(true);
});

test('one endless line is cut too', () => {
  expect(fold('x'.repeat(9000))).toEqual({ shown: `${'x'.repeat(4000)}…`, lines: 1, folded: true });
});
