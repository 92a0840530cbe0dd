import { expect, test } from 'vitest';
import type { Message } from '../api/types';
import { part } from './parted';

const said = (...texts: string[]) => texts.map((text, index) => ({ id: `${text} ${Math.random()}`, role: index % 2 ? 'assistant' : 'user', parts: [{ type: 'text', text }] }) as unknown as Message);
const texts = (messages: Message[]) => messages.map((message) => (message.parts[0] as { text: string }).text);
const shown = (left: string[], right: string[]) => {
  const { alike, rows } = part(said(...left), said(...right));
  return [alike, ...rows.map((row) => row.map(texts))];
};

test('two lines part at the first turn that is not the same, and stand turn beside turn from there', () => {
  expect(shown(['a', 'b', 'c', 'd'], ['a', 'b', 'e', 'f', 'g', 'h'])).toEqual([2, [['c', 'd'], ['e', 'f']], [[], ['g', 'h']]]);
});

test('what was asked alike and answered otherwise parts with the question', () => {
  expect(shown(['a', 'b', 'c', 'd'], ['a', 'b', 'c', 'e'])).toEqual([2, [['c', 'd'], ['c', 'e']]]);
  expect(shown(['a', 'b'], ['a', 'c'])).toEqual([0, [['a', 'b'], ['a', 'c']]]);
});

test('lines that say the same do not part, and one may end before the other', () => {
  expect(shown(['a', 'b'], ['a', 'b'])).toEqual([2]);
  expect(shown(['a', 'b'], ['a', 'b', 'c'])).toEqual([2, [[], ['c']]]);
  expect(shown([], ['a'])).toEqual([0, [[], ['a']]]);
});
