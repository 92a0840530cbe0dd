import { expect, test } from 'vitest';
import { notificationText } from './notifications';
import { tabIcon } from './tab_icon';

test('only finished and waiting work is notified', () => {
  expect(notificationText('busy', 'waiting', 'Menu')).toBe('Menu is waiting for you');
  expect(notificationText('retrying', 'error', 'Menu')).toBe('Menu failed');
  expect(notificationText('busy', 'idle', 'Menu')).toBe('Menu is done');
  expect(notificationText('idle', 'waiting', 'Menu')).toBe('Menu is waiting for you');
  expect([notificationText('waiting', 'idle', 'Menu'), notificationText('idle', 'busy', 'Menu'), notificationText('busy', 'retrying', 'Menu')]).toEqual([null, null, null]);
});

test('the icon has a different dot for each state', () => {
  const icons = [tabIcon('idle', false), tabIcon('busy', false), tabIcon('waiting', false), tabIcon('error', false), tabIcon('idle', true)];
  expect(new Set(icons).size).toBe(5);
  expect(tabIcon('busy', true)).toBe(tabIcon('busy', false));
});
