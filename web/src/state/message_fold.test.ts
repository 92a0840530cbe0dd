import { afterEach, expect, test, vi } from 'vitest';
import type { Message } from '../api/types';
import { MessageFold, yielding } from './message_fold';

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

test('text, reasoning and calls become the parts of one message, whose versions are shown from the first whole one on', async () => {
  const versions: Message[] = [];
  const fold = new MessageFold((message) => versions.push(message));
  const early = [{ type: 'start', messageId: 'm', messageMetadata: { turn_id: 't' } }, { type: 'start-step' }, { type: 'reasoning-start', id: 'r' }, { type: 'reasoning-delta', id: 'r', delta: 'so' }, { type: 'reasoning-end', id: 'r' }];
  const call = [{ type: 'tool-input-start', toolCallId: 'c', toolName: 'ls' }, { type: 'tool-input-delta', toolCallId: 'c', inputTextDelta: '{"path":".' }];
  for (const chunk of [...early, ...call]) await fold.add(chunk);
  expect(versions).toEqual([]);
  await fold.catchUp();
  for (const chunk of [{ type: 'tool-input-available', toolCallId: 'c', toolName: 'ls', input: { path: '.' } }, { type: 'tool-output-available', toolCallId: 'c', output: 'a' }, { type: 'finish-step' }, { type: 'start-step' }]) await fold.add(chunk);
  for (const chunk of [{ type: 'text-start', id: '1' }, { type: 'text-delta', id: '1', delta: 'one' }, { type: 'finish' }]) await fold.add(chunk);
  await fold.end();
  const summary = (message: Message) => message.parts.map((part) => [part.type, 'text' in part ? part.text : 'input' in part ? `${part.state} ${JSON.stringify(part.input)}` : '']);
  const before = [['step-start', ''], ['reasoning', 'so']];
  expect(summary(versions[0]!)).toEqual([...before, ['tool-ls', 'input-streaming {"path":"."}']]);
  expect(summary(versions.at(-1)!)).toEqual([...before, ['tool-ls', 'output-available {"path":"."}'], ['step-start', ''], ['text', 'one']]);
  expect([versions.at(-1)!.id, versions.at(-1)!.metadata]).toEqual(['m', { turn_id: 't' }]);
});

test('a chunk that cannot belong to the message ends the fold with an error, and a dropped fold shows nothing', async () => {
  const versions: Message[] = [];
  const broken = new MessageFold((message) => versions.push(message));
  await broken.add({ type: 'start', messageId: 'm' });
  const added = broken.add({ type: 'text-delta', id: 'x', delta: 'lost' });
  await expect(Promise.all([added, broken.end()])).rejects.toThrow('missing text part');
  const dropped = new MessageFold((message) => versions.push(message));
  await dropped.add({ type: 'start', messageId: 'm' });
  dropped.drop();
  await expect(dropped.end()).rejects.toThrow();
  expect(versions).toEqual([]);
});
