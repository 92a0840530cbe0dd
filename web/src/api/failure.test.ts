import { describe, expect, test } from 'vitest';
import { failureWords } from './failure';
import { failureIn, Problem, Unreachable } from './problem';
import { FAILURES } from './failures';

describe('failures', () => {
  test.each(Object.keys(FAILURES))('%s says what happened and what to do, and keeps what was said apart', (name) => {
    const told = failureWords({ code: name, message: 'Traceback (most recent call last): {"error": 500}', provider_id: 'acme', key_name: 'ACME_KEY' });
    for (const text of [told.words, told.then!]) {
      expect(text).toMatch(/^[A-Za-z].*\.$/);
      expect(text).not.toMatch(/Traceback|[{}]/);
    }
  });

  test('a failure without a provider says so in words', () => {
    expect(failureWords({ cause: 'rate_limit' }).words).toBe('The provider is limiting requests.');
  });

  test('whatever is thrown is told in words', () => {
    expect(failureIn(new Problem(502, 'http_502', 'the server answered 502')).words).toBe('The server did not answer as it should.');
    expect(failureIn(new Problem(422, 'model_failed', 'raw', { cause: 'no_credit', provider_id: 'acme' })).said).toBe('raw');
    expect(failureIn(new Problem(409, 'run_in_flight', 'something runs on this session')).words).toBe('Something runs on this session.');
    expect(failureIn(new Unreachable()).then).toBe('This page tries again by itself.');
    expect(failureIn(new TypeError("can't access property of undefined"))).toEqual({ words: 'Something went wrong in this page.', then: 'Reload it; nothing that was sent is lost.', said: "TypeError: can't access property of undefined" });
  });

  test.each(['constructor', '__proto__', 'toString'])('a code or cause of %s, or words that are none, are no way to break the page', (name) => {
    expect(failureWords({ code: name, cause: name, message: 'said' })).toEqual({ words: 'Said.' });
    expect(failureWords({ code: 'no_key', message: { a: 1 } as never, provider_id: "$'", key_name: '$&' })).toEqual({
      words: "There is no key for $'.",
      then: "Set $& in clew's environment and restart it, or choose another model.",
    });
  });
});
