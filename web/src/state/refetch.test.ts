import { describe, expect, it } from 'vitest';
import { Refetcher, Revision, shared } from './refetch';

/** Reads that are completed by the test, in any order. */
function manualReads() {
  const ends: { done: () => void; fail: (error: unknown) => void }[] = [];
  const refetcher = new Refetcher(() => new Promise<void>((done, fail) => ends.push({ done, fail })));
  return { ends, refetcher };
}

const turn = () => new Promise((resolve) => setTimeout(resolve));

describe('Refetcher', () => {
  it('shares one later read among all calls during a read', async () => {
    const { ends, refetcher } = manualReads();
    const order: string[] = [];
    void refetcher.run().then(() => order.push('first'));
    void refetcher.run().then(() => order.push('second'));
    void refetcher.run().then(() => order.push('third'));
    expect(ends.length).toBe(1);
    ends[0]!.done();
    await turn();
    expect([ends.length, order]).toEqual([2, ['first']]);
    ends[1]!.done();
    await turn();
    expect([ends.length, order]).toEqual([2, ['first', 'second', 'third']]);
  });

  it('reports a failure to its caller, and runs the next read', async () => {
    const { ends, refetcher } = manualReads();
    const order: string[] = [];
    void refetcher.run().catch(() => order.push('failed'));
    void refetcher.run().then(() => order.push('read'));
    ends[0]!.fail(new Error('away'));
    await turn();
    ends[1]!.done();
    await turn();
    expect(order).toEqual(['failed', 'read']);
    void refetcher.run();
    expect(ends.length).toBe(3);
  });
});

it('a change makes what was requested before it older', () => {
  const status = new Revision();
  const isNewest = status.mark();
  expect(isNewest()).toBe(true);
  status.change();
  expect([isNewest(), status.mark()()]).toEqual([false, true]);
});

it('calls during a read share it, and a later call reads again', async () => {
  const asked: number[] = [];
  let done: () => void = () => undefined;
  const read = shared((page: number) => new Promise<void>((resolve) => (asked.push(page), (done = resolve))));
  const calls = [read(1), read(2)];
  done();
  await Promise.all(calls);
  void read(3);
  expect(asked).toEqual([1, 3]);
});
