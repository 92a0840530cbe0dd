import { expect, test } from 'vitest';
import type { Part } from '../api/types';
import { saysNothing, stepsOf } from './steps';

const text = (words: string): Part => ({ type: 'text', text: words });
const start: Part = { type: 'step-start' };

test('parts are gathered by the step they belong to', () => {
  expect(stepsOf([start, text('a'), text('b'), start, text('c')])).toEqual([
    { number: 1, first: 1, parts: [text('a'), text('b')] },
    { number: 2, first: 4, parts: [text('c')] },
  ]);
});

test('a message without marks is one step, and an empty step is none', () => {
  expect(stepsOf([text('a')])).toEqual([{ number: 1, first: 0, parts: [text('a')] }]);
  expect(stepsOf([start, start, text('a'), start])).toEqual([{ number: 1, first: 2, parts: [text('a')] }]);
});

test('a message says nothing until a word or a call is there', () => {
  expect(saysNothing({ parts: [start, text(' ')] })).toBe(true);
  expect(saysNothing({ parts: [start, { type: 'data-x', data: {} } as Part] })).toBe(true);
  expect(saysNothing({ parts: [start, text('a')] })).toBe(false);
  expect(saysNothing({ parts: [{ type: 'tool-ls', toolCallId: 'c', state: 'input-streaming', input: {} } as Part] })).toBe(false);
});
