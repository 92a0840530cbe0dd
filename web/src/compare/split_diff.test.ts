import { expect, test } from 'vitest';
import type { Message } from '../api/types';
import { splitDiff } from './split_diff';

const conversation = (...texts: string[]) => texts.map((text, index) => ({ id: `${text} ${Math.random()}`, role: index % 2 ? 'assistant' : 'user', parts: [{ type: 'text', text }] }) as unknown as Message);
const texts = (messages: Message[]) => messages.map((message) => (message.parts[0] as { text: string }).text);
const shown = (left: string[], right: string[]) => {
  const { common, rows } = splitDiff(conversation(...left), conversation(...right));
  return [common, ...rows.map((row) => row.map(texts))];
};

test('two lists split at the first different turn, and are paired from there', () => {
  expect(shown(['a', 'b', 'c', 'd'], ['a', 'b', 'e', 'f', 'g', 'h'])).toEqual([2, [['c', 'd'], ['e', 'f']], [[], ['g', 'h']]]);
});

test('the same question with another answer splits before the question', () => {
  expect(shown(['a', 'b', 'c', 'd'], ['a', 'b', 'c', 'e'])).toEqual([2, [['c', 'd'], ['c', 'e']]]);
  expect(shown(['a', 'b'], ['a', 'c'])).toEqual([0, [['a', 'b'], ['a', 'c']]]);
});

test('identical lists have no rows, and one list may be longer', () => {
  expect(shown(['a', 'b'], ['a', 'b'])).toEqual([2]);
  expect(shown(['a', 'b'], ['a', 'b', 'c'])).toEqual([2, [[], ['c']]]);
  expect(shown([], ['a'])).toEqual([0, [[], ['a']]]);
});
