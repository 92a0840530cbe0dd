import { expect, test } from 'vitest';
import type { Status } from '../api/types';
import { activityText, retryAt, statusLabels } from './status_labels';

const labels = (status: object, now = 0) => statusLabels(status as Status, now);

test('the labels of an idle, busy and waiting session', () => {
  expect(labels({ state: 'idle' })).toEqual({ state: 'idle', label: 'Idle', detail: null });
  expect(labels({ state: 'busy' })).toEqual({ state: 'busy', label: 'Working', detail: null });
  expect(labels({ state: 'idle', waiting: [{}] })).toEqual({ state: 'waiting', label: 'Waiting for you', detail: null });
});

test('a retry counts down to the time the server gives', () => {
  const status = { state: 'retrying', attempt: 2, message: 'too many requests', retry_at: 10_000 };
  expect(labels(status, 7500)).toEqual({ state: 'retrying', label: 'Retrying, attempt 2', detail: 'in 3 s' });
  expect(labels(status, 11_000).detail).toBe('now');
  expect([retryAt(status as Status), retryAt({ state: 'busy', retry_at: 1 } as Status)]).toEqual([10_000, null]);
});

test('a retry without a time has no countdown', () => {
  expect(labels({ state: 'retrying', message: 'too many requests' })).toEqual({ state: 'retrying', label: 'Retrying', detail: null });
});

test('a failure shows our message, never the text of the provider', () => {
  expect(labels({ state: 'error', message: '401', problem: { code: 'model_failed', message: '401', cause: 'key_refused' } })).toEqual({ state: 'error', label: 'Failed', detail: 'The provider refused the key.' });
  expect(labels({ state: 'error' }).detail).toBe(null);
});

test('other activities are shown as the engine names them', () => {
  expect(activityText({ state: 'busy', message: 'summarising 5 earlier turns' } as Status)).toBe('Summarising 5 earlier turns…');
  expect([activityText({ state: 'busy' } as Status), activityText({ state: 'retrying', message: 'x' } as Status)]).toEqual([null, null]);
});
