import { describe, expect, it } from 'vitest';
import { Rereading } from './rereading';

/** Readings that end when they are told to, in any order. */
function gated() {
  const ends: { done: () => void; broken: (error: unknown) => void }[] = [];
  const rereading = new Rereading(() => new Promise<void>((done, broken) => ends.push({ done, broken })));
  return { ends, rereading };
}

const turn = () => new Promise((resolve) => setTimeout(resolve));

describe('rereading', () => {
  it('answers all who ask during a reading with one more, begun after they asked', async () => {
    const { ends, rereading } = gated();
    const told: string[] = [];
    void rereading.again().then(() => told.push('first'));
    void rereading.again().then(() => told.push('second'));
    void rereading.again().then(() => told.push('third'));
    expect(ends.length).toBe(1);
    ends[0]!.done();
    await turn();
    expect([ends.length, told]).toEqual([2, ['first']]);
    ends[1]!.done();
    await turn();
    expect([ends.length, told]).toEqual([2, ['first', 'second', 'third']]);
  });

  it('tells a failure to whoever asked for it, and reads on for the others', async () => {
    const { ends, rereading } = gated();
    const told: string[] = [];
    void rereading.again().catch(() => told.push('failed'));
    void rereading.again().then(() => told.push('read'));
    ends[0]!.broken(new Error('away'));
    await turn();
    ends[1]!.done();
    await turn();
    expect(told).toEqual(['failed', 'read']);
    void rereading.again();
    expect(ends.length).toBe(3);
  });
});
