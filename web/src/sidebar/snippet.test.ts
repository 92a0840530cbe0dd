import { expect, test } from 'vitest';
import { pieces } from './snippet';

const rendered = (snippet: string, query: string) =>
  pieces(snippet, query)
    .map((piece) => (piece.found ? `[${piece.text}]` : piece.text))
    .join('');

test('matches are separated from the text around them', () => {
  expect(rendered('…a ball of **thread** at the door…', 'thread')).toBe('…a ball of [thread] at the door…');
});

test('the last word matches as a prefix', () => {
  expect(rendered('**the** way to **Theseus**', 'the')).toBe('[the] way to [Theseus]');
});

test('asterisks of the text are removed and mark nothing', () => {
  expect(rendered('**Bold** words and **thread** and **more**', 'thread')).toBe('Bold words and [thread] and more');
  expect(rendered('****thread**** runs', 'thread')).toBe('[thread] runs');
});

test('a phrase and letters with marks are found', () => {
  expect(rendered('say **ball of thread** now', '"ball of thread"')).toBe('say [ball of thread] now');
  expect(rendered('a **café** here', 'cafe')).toBe('a [café] here');
});

test('the marks are trusted if no piece is a searched word', () => {
  expect(rendered('one **zwei** three', 'two')).toBe('one [zwei] three');
});

test('controls and direction overrides do not reach the page', () => {
  expect(rendered('a\u0007b\u202Ec\nd **x**', 'x')).toBe('a b c d [x]');
});
