import { expect, test } from 'vitest';
import type { Message } from '../api/types';
import { newestFinished } from './sidecar';

const message = (id: string, turn_id?: string) => ({ id, role: 'user', parts: [], metadata: { turn_id } }) as Message;

test('the newest finished message is the branch point', () => {
  expect(newestFinished([message('a', 't1'), message('b', 't2')], null)).toBe('b');
});

test('streaming and unsent messages are skipped', () => {
  expect(newestFinished([message('a', 't1'), message('b', 't2'), message('c')], 't2')).toBe('a');
});

test('an empty conversation has nothing to branch from', () => {
  expect(newestFinished([], null)).toBe(null);
});
