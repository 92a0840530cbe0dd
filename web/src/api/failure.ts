/** Error messages for people, from the table that the terminal uses as well. */

import { FAILURES } from './failures';

/** A stored error of a turn, or the same fields of a `Problem`. */
export interface Failure {
  code?: string;
  message?: string;
  cause?: string;
  provider_id?: string;
  key_name?: string;
}

export interface FailureText {
  summary: string;
  /** The suggested next step. */
  hint?: string;
  /** The message of a provider or program. */
  details?: string;
}

/** Responses of a proxy between this page and the server, by status. */
const PROXY_ERRORS: Record<string, FailureText> = {
  http_401: { summary: 'This page’s token is no longer valid.', hint: 'Open the address that `clew url` prints.' },
  http_404: { summary: 'Not found on the server.', hint: 'The server may have another version: reload the page.' },
  http_413: { summary: 'This is more than the server accepts in one request.', hint: 'Send less, or smaller files.' },
  http_429: { summary: 'Too many requests.', hint: 'Wait a little, then try again.' },
};
const UNEXPECTED: FailureText = { summary: 'The server sent an unexpected response.', hint: 'Try again in a moment; if it persists, check the server.' };

export function failureText(failure: Failure | null | undefined): FailureText {
  // Stored errors may come from an import or another program, with values of any type.
  const [code, message, cause] = [failure?.code, failure?.message, failure?.cause].map((one) => (typeof one === 'string' ? one : '')) as [string, string, string];
  const details = message.trim();
  const known = rowOf(cause) ?? rowOf(code);
  if (known) {
    // For an interruption the engine's message lists tools, and each tool call shows that itself.
    return { summary: filled(known.happened, failure!), hint: filled(known.next, failure!), ...(details && code !== 'interrupted' ? { details: details } : {}) };
  }
  if (/^http_\d+$/.test(code)) return { ...(PROXY_ERRORS[code] ?? UNEXPECTED), ...(details ? { details: details } : {}) };
  return { summary: details ? sentence(details) : 'This failed.' };
}

function rowOf(name: string): (typeof FAILURES)[string] | undefined {
  return Object.hasOwn(FAILURES, name) ? FAILURES[name] : undefined;
}

function filled(text: string, { provider_id, key_name }: Failure): string {
  const whole = text.replaceAll('{provider}', () => provider_id ?? 'the provider').replaceAll('{key}', () => key_name ?? 'its key');
  return whole.startsWith('the provider') ? `T${whole.slice(1)}` : whole;
}

export function sentence(text: string): string {
  const capital = text[0]!.toUpperCase() + text.slice(1);
  return /[.!?…]$/.test(capital) ? capital : `${capital}.`;
}
