import { expect, test } from 'vitest';
import type { Message } from '../api/types';
import { newestSettled } from './sidecar';

const message = (id: string, turn_id?: string) => ({ id, role: 'user', parts: [], metadata: { turn_id } }) as Message;

test('the newest finished message is branched from', () => {
  expect(newestSettled([message('a', 't1'), message('b', 't2')], null)).toBe('b');
});

test('what is being written, or was only just typed, is passed over', () => {
  expect(newestSettled([message('a', 't1'), message('b', 't2'), message('c')], 't2')).toBe('a');
});

test('an empty conversation has nothing to branch from', () => {
  expect(newestSettled([], null)).toBe(null);
});
