import { expect, test } from 'vitest';
import { costOf, remarksOf, rowsOf } from './spend';

const sums = { calls: 1, input: 10, output: 5, reasoning: 0, cache_read: 0, cache_write: 0, cost_usd: 0, estimated: 0, unpriced: 0 };

test('days are sorted newest first, everything else by cost', () => {
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
    ['Deleted sessions', null, (15 / 95) * 100],
  ]);
});

test('estimates are marked, and unknown prices are not shown as free', () => {
  expect(costOf({ ...sums, cost_usd: 0.5, estimated: 1 })).toBe('~$0.50');
  expect(costOf({ ...sums, unpriced: 1 })).toBe('price unknown');
  expect(costOf({ ...sums, calls: 2, unpriced: 1 })).toBe('$0');
  expect(remarksOf({ ...sums, estimated: 1, unpriced: 2 })).toEqual([
    '~ includes estimates: usage not reported for 1 call.',
    '2 calls not counted: the model is free, or its price is unknown.',
  ]);
  expect(remarksOf(sums)).toEqual([]);
});
