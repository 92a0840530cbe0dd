import { expect, test } from 'vitest';
import type { Part } from '../api/types';
import { summarizeReads, type VisibleItem, visibleItems } from './collapsed_reads';
import { stepsOf } from './steps';

const start = { type: 'step-start' } as Part;
const text = (content: string): Part => ({ type: 'text', text: content });
const read = (name: string, more: object = {}): Part => ({ type: `tool-${name}`, toolCallId: name, state: 'output-available', input: {}, output: 'x', ...more }) as Part;
const brief = (shown: VisibleItem[]) => shown.map((one) => (one.kind === 'step' ? `step ${one.number}` : one.kind === 'reads' ? summarizeReads(one.parts) : one.part.type));

test('consecutive reads are one line, also across steps', () => {
  const parts = [start, text('hm'), read('read'), start, read('read'), read('grep'), start, read('ls'), start, text('so')];
  expect(brief(visibleItems(stepsOf(parts)))).toEqual(['text', 'Read 2 files, searched text 1 time, listed 1 folder', 'step 4', 'text']);
});

test('fewer reads are shown separately, with their step marks', () => {
  expect(brief(visibleItems(stepsOf([start, read('read'), start, read('grep'), start, text('so')])))).toEqual(['tool-read', 'step 2', 'tool-grep', 'step 3', 'text']);
});

test('running, failed, approved and changing calls are never collapsed', () => {
  const parts = [start, read('read'), read('read'), read('read', { state: 'output-error', errorText: 'no' }), read('bash'), read('read'), read('read', { state: 'input-available' }), read('read', { approval: { id: 'a', approved: true } })];
  expect(brief(visibleItems(stepsOf(parts)))).toEqual(['tool-read', 'tool-read', 'tool-read', 'tool-bash', 'tool-read', 'tool-read', 'tool-read']);
});
