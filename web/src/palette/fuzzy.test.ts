import { expect, test } from 'vitest';
import { best, matchScore } from './fuzzy';

test('letters match in order only', () => {
  expect(matchScore('nws', 'New session')).not.toBeNull();
  expect(matchScore('swn', 'New session')).toBeNull();
  expect(matchScore('', 'anything')).toBe(0);
});

test('exact substrings come first, then word starts, then the rest', () => {
  const found = (typed: string, all: string[]) => best(typed, all, (one) => one, 3).map(({ one }) => one);
  const all = ['spread settings', 'reset things', 'Settings'];
  expect(found('sett', all)).toEqual(['Settings', 'spread settings', 'reset things']);
  expect(found('ns', ['lens', 'New session'])).toEqual(['lens', 'New session']);
  expect(found('zzz', all)).toEqual([]);
});

test('letters scattered over a long text do not count', () => {
  expect(matchScore('review', 'Summarise the older turns; every part is kept, which one may open below')).toBeNull();
});
