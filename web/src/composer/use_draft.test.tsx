import { act, renderHook } from '@testing-library/react';
import { beforeEach, expect, test } from 'vitest';
import { Client } from '../api/client';
import { Conversation } from '../state/conversation';
import { loadDraft } from './draft';
import { type DraftField, useDraft } from './use_draft';

beforeEach(() => window.localStorage.clear());

function opened(id = 'ses_1') {
  const conversation = new Conversation(id, new Client('token', '', () => Promise.reject(new Error('no network here'))));
  return { conversation, hook: renderHook(() => useDraft(conversation, () => undefined)) };
}

function detachFrom(hook: ReturnType<typeof opened>['hook']) {
  let detached: ReturnType<DraftField['detach']> | undefined;
  act(() => {
    detached = hook.result.current.detach();
  });
  return detached!;
}

test('every keystroke is stored, and restored when the session is opened again', () => {
  const { hook } = opened();
  act(() => hook.result.current.put({ text: 'half a thou', editing: null }));
  expect(loadDraft('ses_1')).toEqual({ text: 'half a thou', editing: null });
  hook.unmount();
  expect(opened().hook.result.current.text).toBe('half a thou');
});

test('text being sent leaves the field immediately, and the storage only when the server has it', () => {
  const { hook } = opened();
  act(() => hook.result.current.put({ text: 'sent', editing: null }));
  const detached = detachFrom(hook);
  expect([hook.result.current.text, loadDraft('ses_1').text]).toEqual(['', 'sent']);
  act(() => hook.result.current.put({ text: 'typed since', editing: null }));
  expect(loadDraft('ses_1').text).toBe('sent\n\ntyped since');
  act(() => detached.settled());
  expect([hook.result.current.text, loadDraft('ses_1').text]).toEqual(['typed since', 'typed since']);
});

test('a refused text returns once, before what was typed since', () => {
  const { conversation, hook } = opened();
  act(() => hook.result.current.put({ text: 'sent', editing: null }));
  const detached = detachFrom(hook);
  act(() => hook.result.current.put({ text: 'typed since', editing: null }));
  act(() => conversation.fillComposer('sent'));
  act(() => detached.settled());
  expect([hook.result.current.text, loadDraft('ses_1').text]).toEqual(['sent\n\ntyped since', 'sent\n\ntyped since']);
});

test('an offered text is not inserted again by a new composer', () => {
  const { conversation, hook } = opened();
  act(() => conversation.fillComposer('from a rewind'));
  expect(hook.result.current.text).toBe('from a rewind');
  act(() => hook.result.current.put({ text: '', editing: null }));
  hook.unmount();
  const again = renderHook(() => useDraft(conversation, () => undefined));
  expect(again.result.current.text).toBe('');
});
