import { beforeEach, expect, test } from 'vitest';
import { forgetDraft, mergeDrafts, loadDraft, saveDraft } from './draft';

beforeEach(() => window.localStorage.clear());

test('each session has its own draft', () => {
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

test('an unreadable draft is ignored', () => {
  window.localStorage.setItem('clew.draft.a', '{broken');
  window.localStorage.setItem('clew.draft.b', '"text"');
  window.localStorage.setItem('clew.draft.c', '{"text":7}');
  expect([loadDraft('a'), loadDraft('b'), loadDraft('c')]).toEqual(Array(3).fill({ text: '', editing: null }));
});

test('a full storage does not throw', () => {
  const full = { setItem: () => { throw new DOMException('full', 'QuotaExceededError'); } } as unknown as Storage;
  expect(() => saveDraft('a', { text: 'one', editing: null }, full)).not.toThrow();
});

test('a returned text is put before what was typed since', () => {
  expect(mergeDrafts('sent', 'typed')).toBe('sent\n\ntyped');
  expect(mergeDrafts('sent', '')).toBe('sent');
  expect(mergeDrafts('sent', '  ')).toBe('sent');
  expect(mergeDrafts('same', 'same')).toBe('same');
  expect(mergeDrafts('', 'typed')).toBe('typed');
});
