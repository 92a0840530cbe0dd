import { expect, test } from 'vitest';
import { ending } from './turn_words';

test('a turn that ended well says nothing', () => {
  expect(ending(undefined)).toBe(null);
  expect(ending({ status: 'completed', stopped: null })).toBe(null);
  expect(ending({ status: 'running' })).toBe(null);
  expect(ending({ status: 'waiting' })).toBe(null);
});

test('a cut answer says so and offers to go on; one that was filtered does not look complete', () => {
  expect(ending({ status: 'completed', stopped: 'length' })).toEqual({ tone: 'quiet', words: 'Cut off at the limit of its length.', next: 'Continue' });
  expect(ending({ status: 'completed', stopped: 'other' })?.next).toBe('Continue');
  expect(ending({ status: 'completed', stopped: 'content_filter' })).toEqual({ tone: 'quiet', words: 'Stopped by the filter of the provider.', next: null });
  expect(ending({ status: 'completed', stopped: 'error' })).toEqual({ tone: 'bad', words: 'The model broke off with an error of its own.', next: null });
});

test('the step limit offers to go on', () => {
  const detail = 'max_steps in the file of the agent raises it.';
  expect(ending({ status: 'completed', stopped: 'step_limit' })).toEqual({ tone: 'quiet', words: 'Stopped at the step limit.', detail, next: 'Continue' });
  expect(ending({ status: 'completed', stopped: 'step_limit', max_steps: 100 })).toEqual({ tone: 'quiet', words: 'Stopped after 100 steps, the limit.', detail, next: 'Continue' });
  expect(ending({ status: 'completed', stopped: 'doom_loop' })).toEqual({ tone: 'quiet', words: 'Stopped, because it repeated itself.', next: 'Continue' });
});

test('a failure is told in plain words with what was said', () => {
  expect(ending({ status: 'failed', error: { code: 'model_failed', message: '401: the key is not valid' } })).toEqual({
    tone: 'bad',
    words: 'The model could not answer.',
    detail: 'Try again, or choose another model.',
    said: '401: the key is not valid',
    next: 'Try again',
  });
  expect(ending({ status: 'failed', error: { code: 'model_failed', message: 'x', cause: 'no_key', provider_id: 'openai', key_name: 'OPENAI_API_KEY' } })).toEqual({
    tone: 'bad',
    words: 'There is no key for openai.',
    detail: "Set OPENAI_API_KEY in clew's environment and restart it, or choose another model.",
    said: 'x',
    next: 'Try again',
  });
  expect(ending({ status: 'failed' })).toEqual({ tone: 'bad', words: 'This turn failed.', next: 'Try again' });
});

test('a stopped turn can go on', () => {
  expect(ending({ status: 'aborted', stopped: 'aborted' })).toEqual({ tone: 'quiet', words: 'Stopped.', next: 'Continue' });
  expect(ending({ status: 'aborted', stopped: 'the server was restarted' })).toEqual({ tone: 'quiet', words: 'Stopped.', detail: 'The server was restarted.', next: 'Continue' });
});

test('a server that stopped is told in words for people', () => {
  expect(ending({ status: 'aborted', stopped: 'the host is shutting down' })).toEqual({ tone: 'quiet', words: 'Stopped.', detail: 'The server was shut down.', next: 'Continue' });
  expect(ending({ status: 'failed', error: { code: 'interrupted', message: 'aborted by host restart; its effects are unknown' } })).toEqual({
    tone: 'bad',
    words: 'Interrupted: the server stopped during this response.',
    detail: 'The text so far is saved; continue from there.',
    next: 'Try again',
  });
});

test('an unknown code is told by its own sentence', () => {
  expect(ending({ status: 'failed', error: { code: 'new_thing', message: 'it rains' } })).toEqual({ tone: 'bad', words: 'It rains.', next: 'Try again' });
});
