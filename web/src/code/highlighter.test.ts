import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Highlighter, type Ask, type Run } from './highlighter';

class Scripted {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onerror: (() => void) | null = null;
  asked: Ask[] = [];
  ended = false;
  postMessage(ask: Ask) {
    this.asked.push(ask);
  }
  terminate() {
    this.ended = true;
  }
  say(runs: Run[] | null) {
    this.onmessage?.({ data: { id: this.asked[this.asked.length - 1]!.id, runs } });
  }
}

const workers: Scripted[] = [];
const made = () => {
  const worker = new Scripted();
  workers.push(worker);
  return worker as unknown as Worker;
};

beforeEach(() => {
  workers.length = 0;
  vi.useFakeTimers();
});
afterEach(() => vi.useRealTimers());

it('sends one text at a time, newest first, and caches results', () => {
  const highlighter = new Highlighter(made);
  const told: unknown[] = [];
  highlighter.ask('js', 'a', (runs) => told.push(['a', runs]));
  highlighter.ask('js', 'b', (runs) => told.push(['b', runs]));
  highlighter.ask('js', 'c', (runs) => told.push(['c', runs]));
  expect(workers[0]!.asked.map((ask) => ask.code)).toEqual(['a']);
  workers[0]!.say([['a', null]]);
  workers[0]!.say([['c', 'name']]);
  workers[0]!.say(null);
  expect(told).toEqual([
    ['a', [['a', null]]],
    ['c', [['c', 'name']]],
    ['b', null],
  ]);
  expect([highlighter.known('js', 'c'), highlighter.known('js', 'b'), highlighter.known('py', 'c')]).toEqual([[['c', 'name']], null, undefined]);
});

it('leaves a text plain if the worker hangs or crashes, and starts a new one', () => {
  const highlighter = new Highlighter(made);
  const told: unknown[] = [];
  highlighter.ask('js', 'hangs', (runs) => told.push(runs));
  highlighter.ask('js', 'dies', (runs) => told.push(runs));
  highlighter.ask('js', 'fine', (runs) => told.push(runs));
  vi.advanceTimersByTime(5_000);
  expect([workers.length, workers[0]!.ended]).toEqual([2, true]);
  workers[1]!.say([['fine', null]]);
  workers[1]!.onerror?.();
  expect([told, highlighter.known('js', 'hangs')]).toEqual([[null, [['fine', null]], null], null]);
});

it('does not send cancelled requests', () => {
  const highlighter = new Highlighter(made);
  highlighter.ask('js', 'a', () => undefined);
  highlighter.ask('js', 'b', () => expect.fail('taken back'))();
  workers[0]!.say(null);
  expect(workers[0]!.asked.map((ask) => ask.code)).toEqual(['a']);
});

it('limits the cache', () => {
  const highlighter = new Highlighter(made);
  for (let n = 0; n < 50; n += 1) {
    highlighter.ask('js', `${n}${'x'.repeat(59_000)}`, () => undefined);
    workers[0]!.say([['x', null]]);
  }
  expect(highlighter.known('js', `0${'x'.repeat(59_000)}`)).toBeUndefined();
  expect(highlighter.known('js', `49${'x'.repeat(59_000)}`)).toEqual([['x', null]]);
});
