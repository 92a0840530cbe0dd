import { describe, expect, it } from 'vitest';
import { Refetcher } from './refetch';

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
