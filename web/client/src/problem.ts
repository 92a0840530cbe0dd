/** What the server refused, with its stable code; the server that is not there; and a stream that broke off. */

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

/** What answers is no clew server, or one of another version, or something in between spoke for it. */
export class BadAnswer extends Error {
  constructor(detail: string) {
    super(`what answers is no clew server, or one of another version: ${detail}`);
    this.name = 'BadAnswer';
  }
}

export function isProblem(error: unknown, code: string): boolean {
  return error instanceof Problem && error.code === code;
}

/** The problem in an answer that is none of the good ones. */
export function problemOf(response: Response, text: string): Problem {
  let body: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (parsed && typeof parsed === 'object') body = parsed as Record<string, unknown>;
  } catch {
    // A proxy answers with a page of its own; the status says enough.
  }
  const detail = typeof body.detail === 'string' ? body.detail : `the server answered ${response.status}`;
  const code = typeof body.code === 'string' ? body.code : `http_${response.status}`;
  return new Problem(response.status, code, detail, body);
}
