import { describe, expect, it } from 'vitest';
import { Refetcher } from './refetch';

/** Reads that are completed by the test, in any order. */
function gated() {
  const ends: { done: () => void; broken: (error: unknown) => void }[] = [];
  const refetcher = new Refetcher(() => new Promise<void>((done, broken) => ends.push({ done, broken })));
  return { ends, refetcher };
}

const turn = () => new Promise((resolve) => setTimeout(resolve));

describe('Refetcher', () => {
  it('shares one later read among all calls during a read', async () => {
    const { ends, refetcher } = gated();
    const told: string[] = [];
    void refetcher.run().then(() => told.push('first'));
    void refetcher.run().then(() => told.push('second'));
    void refetcher.run().then(() => told.push('third'));
    expect(ends.length).toBe(1);
    ends[0]!.done();
    await turn();
    expect([ends.length, told]).toEqual([2, ['first']]);
    ends[1]!.done();
    await turn();
    expect([ends.length, told]).toEqual([2, ['first', 'second', 'third']]);
  });

  it('reports a failure to its caller, and runs the next read', async () => {
    const { ends, refetcher } = gated();
    const told: string[] = [];
    void refetcher.run().catch(() => told.push('failed'));
    void refetcher.run().then(() => told.push('read'));
    ends[0]!.broken(new Error('away'));
    await turn();
    ends[1]!.done();
    await turn();
    expect(told).toEqual(['failed', 'read']);
    void refetcher.run();
    expect(ends.length).toBe(3);
  });
});
