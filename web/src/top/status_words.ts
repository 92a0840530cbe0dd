/** What a session is doing, in words. */

import { type Failure, failureWords } from '../api/failure';
import type { Status } from '../api/types';
import { STATE_WORDS, type StateName, stateOf } from '../sidebar/session_state';

export interface StatusWords {
  state: StateName;
  words: string;
  /** More about it: how long until the next attempt, or what went wrong. */
  detail: string | null;
}

/** When the next attempt is made, if the server says so. */
export function retryAt(status: Status): number | null {
  const at = (status as { retry_at?: unknown }).retry_at;
  return status.state === 'retrying' && typeof at === 'number' ? at : null;
}

export function statusWords(status: Status, now: number): StatusWords {
  const state = stateOf(status);
  if (state === 'retrying') {
    const at = retryAt(status);
    const seconds = at === null ? null : Math.max(0, Math.ceil((at - now) / 1000));
    const attempt = status.attempt ? `, attempt ${status.attempt}` : '';
    return { state, words: `Retrying${attempt}`, detail: seconds === null ? null : seconds === 0 ? 'now' : `in ${seconds} s` };
  }
  if (state === 'error') return { state, words: STATE_WORDS.error, detail: status.problem ? failureWords(status.problem as Failure).words : null };
  return { state, words: STATE_WORDS[state], detail: null };
}

/** What it does beside answering: "Summarising 5 earlier turns…". */
export function doingWords(status: Status): string | null {
  if (status.state !== 'busy' || !status.message) return null;
  return `${status.message[0]!.toUpperCase()}${status.message.slice(1)}…`;
}
