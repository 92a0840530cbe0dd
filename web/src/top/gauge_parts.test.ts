import { expect, test } from 'vitest';
import { gaugeOf, gaugeText, shortGaugeText } from './gauge_parts';

const report = (change: object = {}) => ({
  limit: 200_000,
  reserve: 4000,
  threshold: 160_000,
  used: 12_000,
  measured: true,
  parts: { system: 1000, tools: 2000, summary: 0, history: 3000, pruned: 500 },
  ...change,
});

test('parts are scaled to the usage, and empty parts are omitted', () => {
  expect(gaugeOf(report())).toEqual({
    parts: [
      { name: 'system', tokens: 1000, share: 1 },
      { name: 'tools', tokens: 2000, share: 2 },
      { name: 'history', tokens: 3000, share: 3 },
    ],
    threshold: 80,
    percent: 6,
    state: 'room',
  });
});

test('usage beyond the window extends the bar', () => {
  const parts = { system: 0, tools: 0, summary: 0, history: 16_000, pruned: 0 };
  expect(gaugeOf(report({ limit: 8000, threshold: 7600, used: 16_000, parts }))).toEqual({
    parts: [{ name: 'history', tokens: 16_000, share: 100 }],
    threshold: 47.5,
    percent: 200,
    state: 'over',
  });
});

test('an empty session has an empty bar', () => {
  const parts = { system: 0, tools: 0, summary: 0, history: 0, pruned: 0 };
  expect(gaugeOf(report({ used: 0, parts }))).toEqual({ parts: [], threshold: 80, percent: 0, state: 'room' });
});

test('the state shows when the threshold is near', () => {
  expect([gaugeOf(report({ used: 136_000 })).state, gaugeOf(report({ used: 137_000 })).state, gaugeOf(report({ used: 161_000 })).state]).toEqual([
    'room',
    'near',
    'over',
  ]);
});

test('an estimate is labelled as one', () => {
  expect([shortGaugeText(report()), shortGaugeText(report({ measured: false }))]).toEqual(['12k of 200k', 'about 12k of 200k']);
  expect(gaugeText(report({ measured: false }))).toBe(
    'Estimate: the next request uses 12k of 200k tokens (6%). Auto-compacts at 160k. Pruning saves 500.',
  );
});
