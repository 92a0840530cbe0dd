import { expect, test } from 'vitest';
import type { Message } from '../api/types';
import { caughtUp } from './caught_up';

const user = { id: 'u', role: 'user', parts: [{ type: 'text', text: 'go' }] } as Message;

function answer(...parts: object[]): Message {
  return { id: 'a', role: 'assistant', parts } as Message;
}

const text = (words: string) => ({ type: 'text', text: words, state: 'streaming' });
const call = (state: string) => ({ type: 'tool-bash', toolCallId: 'c', state });

test('what was read stays until the stream has as much', () => {
  const known = answer({ type: 'step-start' }, call('output-available'), text('one two'));
  for (const replayed of [answer(), answer({ type: 'step-start' }, call('input-available')), answer({ type: 'step-start' }, call('output-available'), text('one'))]) {
    expect(caughtUp([user, replayed], known)).toEqual([user, known]);
  }
});

test('the stream is shown as soon as it has as much', () => {
  const known = answer({ type: 'step-start' }, text('one two'));
  for (const replayed of [answer({ type: 'step-start' }, text('one two')), answer({ type: 'step-start' }, text('one two three')), answer({ type: 'step-start' }, text('one'), call('input-streaming'))]) {
    const messages = [user, replayed];
    expect(caughtUp(messages, known)).toBe(messages);
  }
});

test('a call counts by its state', () => {
  const known = answer(call('output-denied'));
  expect(caughtUp([answer(call('approval-responded'))], known)).toEqual([known]);
  const messages = [answer(call('output-error'))];
  expect(caughtUp(messages, known)).toBe(messages);
});

test('another message, or none that was read, is shown as it comes', () => {
  const messages = [user, answer()];
  expect(caughtUp(messages, null)).toBe(messages);
  expect(caughtUp(messages, { ...answer(text('one')), id: 'before' })).toBe(messages);
  expect(caughtUp([], answer(text('one')))).toEqual([]);
});
