/** Messages for errors that were thrown. */

import { BadAnswer, Problem, Unreachable } from '@clew/client';
import { type Failure, failureText, type FailureText, sentence } from './failure';

export { Problem, Unreachable };

/** Describe any thrown value. */
export function describeError(error: unknown): FailureText {
  if (error instanceof Problem) return failureText({ ...(error.body as Failure), code: error.code, message: error.message });
  if (error instanceof Unreachable) return { summary: 'The server cannot be reached.', hint: 'This page retries automatically.' };
  if (error instanceof BadAnswer) return { summary: 'The server sent an unexpected response.', hint: 'A proxy may have answered instead of clew: reload the page, log in again.', details: error.message };
  // Errors that the page throws are sentences; those of the browser are not.
  const own = error instanceof Error && error.constructor === Error && error.message;
  if (own) return { summary: sentence(error.message) };
  return { summary: 'Something went wrong in this page.', hint: 'Reload the page; nothing you sent is lost.', details: String(error) };
}

/** Return the message in one line, without the last full stop. */
export function errorText(error: unknown): string {
  const { summary, hint } = describeError(error);
  return [summary, hint].filter(Boolean).join(' ').replace(/\.$/, '');
}
