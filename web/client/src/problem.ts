/** The errors of the client: an error response with its stable code, no response, and an unexpected response. */

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

/** The response did not come from a clew server of this version: from another program, or from a proxy in between. */
export class BadAnswer extends Error {
  constructor(detail: string) {
    super(`unexpected response, not from a clew server of this version: ${detail}`);
    this.name = 'BadAnswer';
  }
}

export function isProblem(error: unknown, code: string): boolean {
  return error instanceof Problem && error.code === code;
}

/** Whether the server is unreachable, restarting or briefly overloaded. */
export function isTemporary(error: unknown): boolean {
  return error instanceof Unreachable || (error instanceof Problem && [502, 503, 504].includes(error.status));
}

/** Parse an error response. */
export function problemOf(response: Response, text: string): Problem {
  let body: Record<string, unknown> = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (parsed && typeof parsed === 'object') body = parsed as Record<string, unknown>;
  } catch {
    // A proxy answers with its own page; report the status.
  }
  const detail = typeof body.detail === 'string' ? body.detail : `the server answered ${response.status}`;
  const code = typeof body.code === 'string' ? body.code : `http_${response.status}`;
  return new Problem(response.status, code, detail, body);
}
