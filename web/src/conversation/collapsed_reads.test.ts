import { expect, test } from 'vitest';
import type { Part } from '../api/types';
import { summarizeReads, type VisibleItem, visibleItems } from './collapsed_reads';
import { stepsOf } from './steps';

const start = { type: 'step-start' } as Part;
const text = (words: string): Part => ({ type: 'text', text: words });
const look = (name: string, more: object = {}): Part => ({ type: `tool-${name}`, toolCallId: name, state: 'output-available', input: {}, output: 'x', ...more }) as Part;
const brief = (shown: VisibleItem[]) => shown.map((one) => (one.kind === 'step' ? `step ${one.number}` : one.kind === 'reads' ? summarizeReads(one.parts) : one.part.type));

test('consecutive reads are one line, also across steps', () => {
  const parts = [start, text('hm'), look('read'), start, look('read'), look('grep'), start, look('ls'), start, text('so')];
  expect(brief(visibleItems(stepsOf(parts)))).toEqual(['text', 'Read 2 files, searched text 1 time, listed 1 folder', 'step 4', 'text']);
});

test('fewer reads are shown separately, with their step marks', () => {
  expect(brief(visibleItems(stepsOf([start, look('read'), start, look('grep'), start, text('so')])))).toEqual(['tool-read', 'step 2', 'tool-grep', 'step 3', 'text']);
});

test('running, failed, approved and changing calls are never collapsed', () => {
  const parts = [start, look('read'), look('read'), look('read', { state: 'output-error', errorText: 'no' }), look('bash'), look('read'), look('read', { state: 'input-available' }), look('read', { approval: { id: 'a', approved: true } })];
  expect(brief(visibleItems(stepsOf(parts)))).toEqual(['tool-read', 'tool-read', 'tool-read', 'tool-bash', 'tool-read', 'tool-read', 'tool-read']);
});
