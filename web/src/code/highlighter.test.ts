import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Highlighter, type Ask, type Run } from './highlighter';

class Scripted {
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onerror: (() => void) | null = null;
  received: Ask[] = [];
  ended = false;
  postMessage(ask: Ask) {
    this.received.push(ask);
  }
  terminate() {
    this.ended = true;
  }
  answer(runs: Run[] | null) {
    this.onmessage?.({ data: { id: this.received[this.received.length - 1]!.id, runs } });
  }
}

const workers: Scripted[] = [];
const createWorker = () => {
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
  const highlighter = new Highlighter(createWorker);
  const answers: unknown[] = [];
  highlighter.ask('js', 'a', (runs) => answers.push(['a', runs]));
  highlighter.ask('js', 'b', (runs) => answers.push(['b', runs]));
  highlighter.ask('js', 'c', (runs) => answers.push(['c', runs]));
  expect(workers[0]!.received.map((ask) => ask.code)).toEqual(['a']);
  workers[0]!.answer([['a', null]]);
  workers[0]!.answer([['c', 'name']]);
  workers[0]!.answer(null);
  expect(answers).toEqual([
    ['a', [['a', null]]],
    ['c', [['c', 'name']]],
    ['b', null],
  ]);
  expect([highlighter.known('js', 'c'), highlighter.known('js', 'b'), highlighter.known('py', 'c')]).toEqual([[['c', 'name']], null, undefined]);
});

it('leaves a text plain if the worker hangs or crashes, and starts a new one', () => {
  const highlighter = new Highlighter(createWorker);
  const answers: unknown[] = [];
  highlighter.ask('js', 'hangs', (runs) => answers.push(runs));
  highlighter.ask('js', 'dies', (runs) => answers.push(runs));
  highlighter.ask('js', 'fine', (runs) => answers.push(runs));
  vi.advanceTimersByTime(5_000);
  expect([workers.length, workers[0]!.ended]).toEqual([2, true]);
  workers[1]!.answer([['fine', null]]);
  workers[1]!.onerror?.();
  expect([answers, highlighter.known('js', 'hangs')]).toEqual([[null, [['fine', null]], null], null]);
});

it('does not send cancelled requests', () => {
  const highlighter = new Highlighter(createWorker);
  highlighter.ask('js', 'a', () => undefined);
  highlighter.ask('js', 'b', () => expect.fail('taken back'))();
  workers[0]!.answer(null);
  expect(workers[0]!.received.map((ask) => ask.code)).toEqual(['a']);
});

it('limits the cache', () => {
  const highlighter = new Highlighter(createWorker);
  for (let n = 0; n < 50; n += 1) {
    highlighter.ask('js', `${n}${'x'.repeat(59_000)}`, () => undefined);
    workers[0]!.answer([['x', null]]);
  }
  expect(highlighter.known('js', `0${'x'.repeat(59_000)}`)).toBeUndefined();
  expect(highlighter.known('js', `49${'x'.repeat(59_000)}`)).toEqual([['x', null]]);
});
