import { expect, test } from 'vitest';
import type { Part } from '../api/types';
import { looksInWords, type Shown, shownOf } from './looks';
import { stepsOf } from './steps';

const start = { type: 'step-start' } as Part;
const text = (words: string): Part => ({ type: 'text', text: words });
const look = (name: string, more: object = {}): Part => ({ type: `tool-${name}`, toolCallId: name, state: 'output-available', input: {}, output: 'x', ...more }) as Part;
const brief = (shown: Shown[]) => shown.map((one) => (one.kind === 'step' ? `step ${one.number}` : one.kind === 'looks' ? looksInWords(one.parts) : one.part.type));

test('looks in a row are one line, also over several steps', () => {
  const parts = [start, text('hm'), look('read'), start, look('read'), look('grep'), start, look('ls'), start, text('so')];
  expect(brief(shownOf(stepsOf(parts)))).toEqual(['text', 'Read 2 files, searched 1 time, listed 1 folder', 'step 4', 'text']);
});

test('a few are shown as they are, each with the mark of its step', () => {
  expect(brief(shownOf(stepsOf([start, look('read'), start, look('grep'), start, text('so')])))).toEqual(['tool-read', 'step 2', 'tool-grep', 'step 3', 'text']);
});

test('what runs, failed, was asked for or changes something is never folded', () => {
  const parts = [start, look('read'), look('read'), look('read', { state: 'output-error', errorText: 'no' }), look('bash'), look('read'), look('read', { state: 'input-available' }), look('read', { approval: { id: 'a', approved: true } })];
  expect(brief(shownOf(stepsOf(parts)))).toEqual(['tool-read', 'tool-read', 'tool-read', 'tool-bash', 'tool-read', 'tool-read', 'tool-read']);
});
