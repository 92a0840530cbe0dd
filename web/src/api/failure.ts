/** What went wrong, in a person's words, from the table that the terminal has them from, too. */

import { FAILURES } from './failures';

/** A stored error of a turn, or what of a problem says the same. */
export interface Failure {
  code?: string;
  message?: string;
  cause?: string;
  provider_id?: string;
  key_name?: string;
}

export interface FailureWords {
  /** What happened. */
  words: string;
  /** What can be done about it. */
  then?: string;
  /** What a provider, or a program, said: for whoever wants to know. */
  said?: string;
}

/** Failures between this page and its server, by status: something in between has answered. */
const BETWEEN: Record<string, FailureWords> = {
  http_401: { words: 'The server does not know this page any more.', then: 'Open the address that `clew url` prints.' },
  http_404: { words: 'The server has nothing there.', then: 'It may be of another version: reload the page.' },
  http_413: { words: 'That is more than the server takes at once.', then: 'Send less, or smaller files.' },
  http_429: { words: 'The server takes no more requests now.', then: 'Wait a little, then try again.' },
};
const AWAY: FailureWords = { words: 'The server did not answer as it should.', then: 'Try again in a moment; if it stays, look at the server.' };

export function failureWords(failure: Failure | null | undefined): FailureWords {
  // What is stored may come from an import, or from another program: of any kind, under any name.
  const [code, message, cause] = [failure?.code, failure?.message, failure?.cause].map((one) => (typeof one === 'string' ? one : '')) as [string, string, string];
  const said = message.trim();
  const known = rowOf(cause) ?? rowOf(code);
  if (known) {
    // Of what was interrupted the engine speaks of tools, each of which says so itself.
    return { words: filled(known.happened, failure!), then: filled(known.next, failure!), ...(said && code !== 'interrupted' ? { said } : {}) };
  }
  if (/^http_\d+$/.test(code)) return { ...(BETWEEN[code] ?? AWAY), ...(said ? { said } : {}) };
  return { words: said ? sentence(said) : 'This failed.' };
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
