import { expect, test } from 'vitest';
import { ending } from './turn_labels';

test('a completed turn has no label', () => {
  expect(ending(undefined)).toBe(null);
  expect(ending({ status: 'completed', stopped: null })).toBe(null);
  expect(ending({ status: 'running' })).toBe(null);
  expect(ending({ status: 'waiting' })).toBe(null);
});

test('a truncated answer offers to continue; a filtered one is labelled', () => {
  expect(ending({ status: 'completed', stopped: 'length' })).toEqual({ tone: 'quiet', summary: 'Cut off at the output limit of the model.', next: 'Continue' });
  expect(ending({ status: 'completed', stopped: 'other' })?.next).toBe('Continue');
  expect(ending({ status: 'completed', stopped: 'content_filter' })).toEqual({ tone: 'quiet', summary: 'Stopped by the provider’s content filter.', next: null });
  expect(ending({ status: 'completed', stopped: 'error' })).toEqual({ tone: 'bad', summary: 'The model stopped with an error.', next: null });
});

test('the step limit offers to continue', () => {
  const hint = 'To raise it, set max_steps in the agent’s file.';
  expect(ending({ status: 'completed', stopped: 'step_limit' })).toEqual({ tone: 'quiet', summary: 'Stopped at the step limit.', hint, next: 'Continue' });
  expect(ending({ status: 'completed', stopped: 'step_limit', max_steps: 100 })).toEqual({ tone: 'quiet', summary: 'Stopped at the step limit (100).', hint, next: 'Continue' });
  expect(ending({ status: 'completed', stopped: 'doom_loop' })).toEqual({ tone: 'quiet', summary: 'Stopped: repeating the same calls.', next: 'Continue' });
});

test('a failure has a summary and details', () => {
  expect(ending({ status: 'failed', error: { code: 'model_failed', message: '401: the key is not valid' } })).toEqual({
    tone: 'bad',
    summary: 'The model could not answer.',
    hint: 'Try again, or choose another model.',
    details: '401: the key is not valid',
    next: 'Try again',
  });
  expect(ending({ status: 'failed', error: { code: 'model_failed', message: 'x', cause: 'no_key', provider_id: 'openai', key_name: 'OPENAI_API_KEY' } })).toEqual({
    tone: 'bad',
    summary: 'There is no key for openai.',
    hint: "Set OPENAI_API_KEY in clew's environment and restart it, or choose another model.",
    details: 'x',
    next: 'Try again',
  });
  expect(ending({ status: 'failed' })).toEqual({ tone: 'bad', summary: 'This turn failed.', next: 'Try again' });
});

test('a stopped turn can continue', () => {
  expect(ending({ status: 'aborted', stopped: 'aborted' })).toEqual({ tone: 'quiet', summary: 'Stopped.', next: 'Continue' });
  expect(ending({ status: 'aborted', stopped: 'the server was restarted' })).toEqual({ tone: 'quiet', summary: 'Stopped.', hint: 'The server was restarted.', next: 'Continue' });
});

test('a server that stopped is reported with a message for people', () => {
  expect(ending({ status: 'aborted', stopped: 'the host is shutting down' })).toEqual({ tone: 'quiet', summary: 'Stopped.', hint: 'The server was shut down.', next: 'Continue' });
  expect(ending({ status: 'failed', error: { code: 'interrupted', message: 'aborted by host restart; its effects are unknown' } })).toEqual({
    tone: 'bad',
    summary: 'Interrupted: the server stopped during this response.',
    hint: 'The text so far is saved; continue from there.',
    next: 'Try again',
  });
});

test('an unknown code shows its message', () => {
  expect(ending({ status: 'failed', error: { code: 'new_thing', message: 'it rains' } })).toEqual({ tone: 'bad', summary: 'It rains.', next: 'Try again' });
});
