/** What is told of a refusal, and of whatever else was thrown. */

import { BadAnswer, Problem, Unreachable } from '@clew/client';
import { type Failure, failureWords, type FailureWords, sentence } from './failure';

export { Problem, Unreachable };

/** What is told of anything that was thrown. */
export function failureIn(error: unknown): FailureWords {
  if (error instanceof Problem) return failureWords({ ...(error.body as Failure), code: error.code, message: error.message });
  if (error instanceof Unreachable) return { words: 'The server cannot be reached.', then: 'This page tries again by itself.' };
  if (error instanceof BadAnswer) return { words: 'The server did not answer as it should.', then: 'Something between this page and clew spoke for it: reload the page, log in again.', said: error.message };
  // What the page throws itself is a sentence; what the browser does is a program's.
  const own = error instanceof Error && error.constructor === Error && error.message;
  if (own) return { words: sentence(error.message) };
  return { words: 'Something went wrong in this page.', then: 'Reload it; nothing that was sent is lost.', said: String(error) };
}

/** The same in one line, without its last full stop. */
export function inWords(error: unknown): string {
  const { words, then } = failureIn(error);
  return [words, then].filter(Boolean).join(' ').replace(/\.$/, '');
}
