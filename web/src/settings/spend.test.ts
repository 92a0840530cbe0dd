import { expect, test } from 'vitest';
import { costOf, remarksOf, rowsOf } from './spend';

const sums = { calls: 1, input: 10, output: 5, reasoning: 0, cache_read: 0, cache_write: 0, cost_usd: 0, estimated: 0, unpriced: 0 };

test('days stand newest first, and everything else dearest first', () => {
  const groups = [
    { ...sums, key: '2026-11-14', cost_usd: 3 },
    { ...sums, key: '2026-11-15', cost_usd: 1 },
  ];
  const report = { groups, total: sums };
  expect(rowsOf(report, 'day', () => null).map((row) => [row.name, row.cost, Math.round(row.share)])).toEqual([
    ['2026-11-15', '$1.00', 33],
    ['2026-11-14', '$3.00', 100],
  ]);
  expect(rowsOf(report, 'model', () => null).map((row) => row.name)).toEqual(['2026-11-14', '2026-11-15']);
  const gone = { groups: [{ ...sums, key: null }, { ...sums, key: 'ses_1', input: 90 }], total: sums };
  expect(rowsOf(gone, 'session', () => 'Mine').map((row) => [row.name, row.session, row.share])).toEqual([
    ['Mine', 'ses_1', 100],
    ['Sessions that are gone', null, (15 / 95) * 100],
  ]);
});

test('a guess is marked, and what has no price is not called free', () => {
  expect(costOf({ ...sums, cost_usd: 0.5, estimated: 1 })).toBe('~$0.50');
  expect(costOf({ ...sums, unpriced: 1 })).toBe('no price known');
  expect(costOf({ ...sums, calls: 2, unpriced: 1 })).toBe('$0');
  expect(remarksOf({ ...sums, estimated: 1, unpriced: 2 })).toEqual([
    '~ is partly a guess: of 1 call the provider did not say all counts.',
    '2 calls count as nothing: the model is free, or nobody knows its price.',
  ]);
  expect(remarksOf(sums)).toEqual([]);
});
