import { describe, expect, test } from 'vitest';
import { failureText } from './failure';
import { describeError, Problem, Unreachable } from './problem';
import { FAILURES } from './failures';

describe('failures', () => {
  test.each(Object.keys(FAILURES))('%s says what happened and what to do, and keeps what was said apart', (name) => {
    const shown = failureText({ code: name, message: 'Traceback (most recent call last): {"error": 500}', provider_id: 'acme', key_name: 'ACME_KEY' });
    for (const text of [shown.summary, shown.hint!]) {
      expect(text).toMatch(/^[A-Za-z].*\.$/);
      expect(text).not.toMatch(/Traceback|[{}]/);
    }
  });

  test('a failure without a provider is readable', () => {
    expect(failureText({ cause: 'rate_limit' }).summary).toBe('The provider is limiting requests.');
  });

  test('whatever is thrown is reported with a message', () => {
    expect(describeError(new Problem(502, 'http_502', 'the server answered 502')).summary).toBe('The server sent an unexpected response.');
    expect(describeError(new Problem(422, 'model_failed', 'raw', { cause: 'no_credit', provider_id: 'acme' })).details).toBe('raw');
    expect(describeError(new Problem(409, 'run_in_flight', 'something runs on this session')).summary).toBe('Something runs on this session.');
    expect(describeError(new Unreachable()).hint).toBe('This page retries automatically.');
    expect(describeError(new TypeError("can't access property of undefined"))).toEqual({ summary: 'Something went wrong in this page.', hint: 'Reload the page; nothing you sent is lost.', details: "TypeError: can't access property of undefined" });
  });

  test.each(['constructor', '__proto__', 'toString'])('a code or cause of %s, or a malformed message, does not break the page', (name) => {
    expect(failureText({ code: name, cause: name, message: 'said' })).toEqual({ summary: 'Said.' });
    expect(failureText({ code: 'no_key', message: { a: 1 } as never, provider_id: "$'", key_name: '$&' })).toEqual({
      summary: "There is no key for $'.",
      hint: "Set $& in clew's environment and restart it, or choose another model.",
    });
  });
});
