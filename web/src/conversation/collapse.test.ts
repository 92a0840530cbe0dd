import { expect, test } from 'vitest';
import { collapse } from './collapse';

const lines = (count: number) => Array.from({ length: count }, (_, index) => `line ${index + 1}`).join('\n');

test('short text is shown whole, without the empty lines at its end', () => {
  expect(collapse('a\nb\n\n')).toEqual({ shown: 'a\nb', lines: 2, collapsed: false });
  expect(collapse('')).toEqual({ shown: '', lines: 0, collapsed: false });
});

test('long text is cut after its first lines', () => {
  expect(collapse(lines(60))).toEqual({ shown: lines(20), lines: 60, collapsed: true });
});

test('two extra lines are shown instead of a button', () => {
  expect(collapse(lines(22)).collapsed).toBe(false);
  expect(collapse(lines(23)).collapsed).toBe(true);
});

test('one endless line is cut too', () => {
  expect(collapse('x'.repeat(9000))).toEqual({ shown: `${'x'.repeat(4000)}…`, lines: 1, collapsed: true });
});
