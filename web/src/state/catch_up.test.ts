import { expect, test } from 'vitest';
import type { Message } from '../api/types';
import { catchUp } from './catch_up';

const user = { id: 'u', role: 'user', parts: [{ type: 'text', text: 'go' }] } as Message;

function answer(...parts: object[]): Message {
  return { id: 'a', role: 'assistant', parts } as Message;
}

const text = (content: string) => ({ type: 'text', text: content, state: 'streaming' });
const call = (state: string) => ({ type: 'tool-bash', toolCallId: 'c', state });

test('the loaded message stays until the stream has caught up', () => {
  const known = answer({ type: 'step-start' }, call('output-available'), text('one two'));
  for (const replayed of [answer(), answer({ type: 'step-start' }, call('input-available')), answer({ type: 'step-start' }, call('output-available'), text('one'))]) {
    expect(catchUp([user, replayed], known)).toEqual([user, known]);
  }
});

test('the stream is shown as soon as it has caught up', () => {
  const known = answer({ type: 'step-start' }, text('one two'));
  for (const replayed of [answer({ type: 'step-start' }, text('one two')), answer({ type: 'step-start' }, text('one two three')), answer({ type: 'step-start' }, text('one'), call('input-streaming'))]) {
    const messages = [user, replayed];
    expect(catchUp(messages, known)).toBe(messages);
  }
});

test('a call is compared by its state', () => {
  const known = answer(call('output-denied'));
  expect(catchUp([answer(call('approval-responded'))], known)).toEqual([known]);
  const messages = [answer(call('output-error'))];
  expect(catchUp(messages, known)).toBe(messages);
});

test('another message, or one that was not loaded, is shown as it streams', () => {
  const messages = [user, answer()];
  expect(catchUp(messages, null)).toBe(messages);
  expect(catchUp(messages, { ...answer(text('one')), id: 'before' })).toBe(messages);
  expect(catchUp([], answer(text('one')))).toEqual([]);
});
