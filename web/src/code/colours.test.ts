import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Colours, type Ask, type Run } from './colours';

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

it('asks one text at a time, the newest first, and keeps what it was told', () => {
  const colours = new Colours(made);
  const told: unknown[] = [];
  colours.ask('js', 'a', (runs) => told.push(['a', runs]));
  colours.ask('js', 'b', (runs) => told.push(['b', runs]));
  colours.ask('js', 'c', (runs) => told.push(['c', runs]));
  expect(workers[0]!.asked.map((ask) => ask.code)).toEqual(['a']);
  workers[0]!.say([['a', null]]);
  workers[0]!.say([['c', 'name']]);
  workers[0]!.say(null);
  expect(told).toEqual([
    ['a', [['a', null]]],
    ['c', [['c', 'name']]],
    ['b', null],
  ]);
  expect([colours.known('js', 'c'), colours.known('js', 'b'), colours.known('py', 'c')]).toEqual([[['c', 'name']], null, undefined]);
});

it('leaves a text plain on which the worker hangs or dies, and takes a new worker for the next', () => {
  const colours = new Colours(made);
  const told: unknown[] = [];
  colours.ask('js', 'hangs', (runs) => told.push(runs));
  colours.ask('js', 'dies', (runs) => told.push(runs));
  colours.ask('js', 'fine', (runs) => told.push(runs));
  vi.advanceTimersByTime(5_000);
  expect([workers.length, workers[0]!.ended]).toEqual([2, true]);
  workers[1]!.say([['fine', null]]);
  workers[1]!.onerror?.();
  expect([told, colours.known('js', 'hangs')]).toEqual([[null, [['fine', null]], null], null]);
});

it('asks nothing that was taken back', () => {
  const colours = new Colours(made);
  colours.ask('js', 'a', () => undefined);
  colours.ask('js', 'b', () => expect.fail('taken back'))();
  workers[0]!.say(null);
  expect(workers[0]!.asked.map((ask) => ask.code)).toEqual(['a']);
});

it('keeps no more than so much', () => {
  const colours = new Colours(made);
  for (let n = 0; n < 50; n += 1) {
    colours.ask('js', `${n}${'x'.repeat(59_000)}`, () => undefined);
    workers[0]!.say([['x', null]]);
  }
  expect(colours.known('js', `0${'x'.repeat(59_000)}`)).toBeUndefined();
  expect(colours.known('js', `49${'x'.repeat(59_000)}`)).toEqual([['x', null]]);
});
