import { beforeEach, expect, test } from 'vitest';
import { forgetDraft, joinDrafts, loadDraft, saveDraft } from './draft';

beforeEach(() => window.localStorage.clear());

test('a draft is kept for each session by itself', () => {
  saveDraft('a', { text: 'one', editing: null });
  saveDraft('b', { text: 'two', editing: 'msg_1' });
  expect([loadDraft('a'), loadDraft('b'), loadDraft('c')]).toEqual([
    { text: 'one', editing: null },
    { text: 'two', editing: 'msg_1' },
    { text: '', editing: null },
  ]);
});

test('an empty draft is forgotten', () => {
  saveDraft('a', { text: 'one', editing: null });
  forgetDraft('a');
  expect([loadDraft('a'), window.localStorage.length]).toEqual([{ text: '', editing: null }, 0]);
});

test('what cannot be read is no draft', () => {
  window.localStorage.setItem('clew.draft.a', '{broken');
  window.localStorage.setItem('clew.draft.b', '"text"');
  window.localStorage.setItem('clew.draft.c', '{"text":7}');
  expect([loadDraft('a'), loadDraft('b'), loadDraft('c')]).toEqual(Array(3).fill({ text: '', editing: null }));
});

test('a full storage costs nothing but the keeping', () => {
  const full = { setItem: () => { throw new DOMException('full', 'QuotaExceededError'); } } as unknown as Storage;
  expect(() => saveDraft('a', { text: 'one', editing: null }, full)).not.toThrow();
});

test('a text that came back stands before what was typed since', () => {
  expect(joinDrafts('sent', 'typed')).toBe('sent\n\ntyped');
  expect(joinDrafts('sent', '')).toBe('sent');
  expect(joinDrafts('sent', '  ')).toBe('sent');
  expect(joinDrafts('same', 'same')).toBe('same');
  expect(joinDrafts('', 'typed')).toBe('typed');
});
