import { afterEach, expect, test, vi } from 'vitest';
import { yielding } from './chat_transport';

afterEach(() => vi.restoreAllMocks());

test('a large backlog is read with pauses, and nothing is lost', async () => {
  let clock = 0;
  vi.spyOn(performance, 'now').mockImplementation(() => (clock += 1));
  const numbers = Array.from({ length: 200 }, (_, n) => n);
  const read: number[] = [];
  const turns: number[] = [];
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    turns.push(read.length);
    port2.postMessage(0);
  };
  port2.postMessage(0);
  const stream = new ReadableStream<number>({
    start(controller) {
      for (const number of numbers) controller.enqueue(number);
      controller.close();
    },
  });
  for await (const number of stream.pipeThrough(yielding<number>()) as unknown as AsyncIterable<number>) read.push(number);
  port1.close();
  expect(read).toEqual(numbers);
  const gaps = [...turns, read.length].map((at, n) => at - (turns[n - 1] ?? 0));
  expect(turns.length).toBeGreaterThan(10);
  expect(Math.max(...gaps)).toBeLessThan(20);
});
