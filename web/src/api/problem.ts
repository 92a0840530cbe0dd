/** What the server refused, with its stable code; and the server that is not there. */

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

/** One sentence for people, whatever was thrown. */
export function inWords(error: unknown): string {
  const text = error instanceof Error ? error.message : String(error);
  return text ? text[0]!.toUpperCase() + text.slice(1) : 'Something went wrong';
}
