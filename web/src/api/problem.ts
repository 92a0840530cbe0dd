/** What the server refused, with its stable code; and the server that is not there. */

import { type Failure, failureWords, type FailureWords, sentence } from './failure';

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly body: Record<string, unknown> = {},
  ) {
    super(detail);
    this.name = 'Problem';
  }
}

export class Unreachable extends Error {
  constructor(cause?: unknown) {
    super('the server cannot be reached');
    this.name = 'Unreachable';
    this.cause = cause;
  }
}

/** The problem in an answer that is none of the good ones. */
export async function problemOf(response: Response): Promise<Problem> {
  let body: Record<string, unknown> = {};
  try {
    const parsed: unknown = await response.json();
    if (parsed && typeof parsed === 'object') body = parsed as Record<string, unknown>;
  } catch {
    // A proxy answers with a page of its own; the status says enough.
  }
  const detail = typeof body.detail === 'string' ? body.detail : `the server answered ${response.status}`;
  const code = typeof body.code === 'string' ? body.code : `http_${response.status}`;
  return new Problem(response.status, code, detail, body);
}

/** What is told of anything that was thrown. */
export function failureIn(error: unknown): FailureWords {
  if (error instanceof Problem) return failureWords({ ...(error.body as Failure), code: error.code, message: error.message });
  if (error instanceof Unreachable) return { words: 'The server cannot be reached.', then: 'This page tries again by itself.' };
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
