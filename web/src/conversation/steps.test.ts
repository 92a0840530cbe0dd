import { expect, test } from 'vitest';
import type { Part } from '../api/types';
import { isEmptyMessage, stepsOf } from './steps';

const text = (content: string): Part => ({ type: 'text', text: content });
const start: Part = { type: 'step-start' };

test('parts are grouped by step', () => {
  expect(stepsOf([start, text('a'), text('b'), start, text('c')])).toEqual([
    { number: 1, first: 1, parts: [text('a'), text('b')] },
    { number: 2, first: 4, parts: [text('c')] },
  ]);
});

test('a message without step marks is one step, and empty steps are dropped', () => {
  expect(stepsOf([text('a')])).toEqual([{ number: 1, first: 0, parts: [text('a')] }]);
  expect(stepsOf([start, start, text('a'), start])).toEqual([{ number: 1, first: 2, parts: [text('a')] }]);
});

test('a message is empty until it has text or a call', () => {
  expect(isEmptyMessage({ parts: [start, text(' ')] })).toBe(true);
  expect(isEmptyMessage({ parts: [start, { type: 'data-x', data: {} } as Part] })).toBe(true);
  expect(isEmptyMessage({ parts: [start, text('a')] })).toBe(false);
  expect(isEmptyMessage({ parts: [{ type: 'tool-ls', toolCallId: 'c', state: 'input-streaming', input: {} } as Part] })).toBe(false);
});
