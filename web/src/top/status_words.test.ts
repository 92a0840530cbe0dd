import { expect, test } from 'vitest';
import type { Status } from '../api/types';
import { doingWords, retryAt, statusWords } from './status_words';

const words = (status: object, now = 0) => statusWords(status as Status, now);

test('a session that rests, works or waits', () => {
  expect(words({ state: 'idle' })).toEqual({ state: 'idle', words: 'Idle', detail: null });
  expect(words({ state: 'busy' })).toEqual({ state: 'busy', words: 'Working', detail: null });
  expect(words({ state: 'idle', waiting: [{}] })).toEqual({ state: 'waiting', words: 'Waiting for you', detail: null });
});

test('a retry counts down to the moment the server names', () => {
  const status = { state: 'retrying', attempt: 2, message: 'too many requests', retry_at: 10_000 };
  expect(words(status, 7500)).toEqual({ state: 'retrying', words: 'Retrying, attempt 2', detail: 'in 3 s' });
  expect(words(status, 11_000).detail).toBe('now');
  expect([retryAt(status as Status), retryAt({ state: 'busy', retry_at: 1 } as Status)]).toEqual([10_000, null]);
});

test('a retry without a moment says only that', () => {
  expect(words({ state: 'retrying', message: 'too many requests' })).toEqual({ state: 'retrying', words: 'Retrying', detail: null });
});

test('a failure says what went wrong in words, never as a provider put it', () => {
  expect(words({ state: 'error', message: '401', problem: { code: 'model_failed', message: '401', cause: 'key_refused' } })).toEqual({ state: 'error', words: 'Failed', detail: 'The provider refused the key.' });
  expect(words({ state: 'error' }).detail).toBe(null);
});

test('what is done beside answering is told as the engine says it', () => {
  expect(doingWords({ state: 'busy', message: 'summarising 5 earlier turns' } as Status)).toBe('Summarising 5 earlier turns…');
  expect([doingWords({ state: 'busy' } as Status), doingWords({ state: 'retrying', message: 'x' } as Status)]).toEqual([null, null]);
});
