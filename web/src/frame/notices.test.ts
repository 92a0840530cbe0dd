import { expect, test } from 'vitest';
import { noticeOf } from './notices';
import { tabIcon } from './tab_icon';

test('it is told of work that ended or waits, and of nothing else', () => {
  expect(noticeOf('busy', 'waiting', 'Menu')).toBe('Menu waits for you');
  expect(noticeOf('retrying', 'error', 'Menu')).toBe('Menu has failed');
  expect(noticeOf('busy', 'idle', 'Menu')).toBe('Menu is done');
  expect(noticeOf('idle', 'waiting', 'Menu')).toBe('Menu waits for you');
  expect([noticeOf('waiting', 'idle', 'Menu'), noticeOf('idle', 'busy', 'Menu'), noticeOf('busy', 'retrying', 'Menu')]).toEqual([null, null, null]);
});

test('the icon has a dot of its own for each thing a session does', () => {
  const icons = [tabIcon('idle', false), tabIcon('busy', false), tabIcon('waiting', false), tabIcon('error', false), tabIcon('idle', true)];
  expect(new Set(icons).size).toBe(5);
  expect(tabIcon('busy', true)).toBe(tabIcon('busy', false));
});
