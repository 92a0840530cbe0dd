/** Labels for the state of a session. */

import { type Failure, failureText } from '../api/failure';
import type { Status } from '../api/types';
import { STATE_LABELS, type StateName, stateOf } from '../sidebar/session_state';

export interface StatusLabels {
  state: StateName;
  label: string;
  /** The time until the next retry, or the error. */
  detail: string | null;
}

/** Return the time of the next retry, if known. */
export function retryAt(status: Status): number | null {
  const at = (status as { retry_at?: unknown }).retry_at;
  return status.state === 'retrying' && typeof at === 'number' ? at : null;
}

export function statusLabels(status: Status, now: number): StatusLabels {
  const state = stateOf(status);
  if (state === 'retrying') {
    const at = retryAt(status);
    const seconds = at === null ? null : Math.max(0, Math.ceil((at - now) / 1000));
    const attempt = status.attempt ? `, attempt ${status.attempt}` : '';
    return { state, label: `Retrying${attempt}`, detail: seconds === null ? null : seconds === 0 ? 'now' : `in ${seconds} s` };
  }
  if (state === 'error') return { state, label: STATE_LABELS.error, detail: status.problem ? failureText(status.problem as Failure).summary : null };
  return { state, label: STATE_LABELS[state], detail: null };
}

/** Return the current activity other than answering: "Summarising 5 earlier turns…". */
export function activityText(status: Status): string | null {
  if (status.state !== 'busy' || !status.message) return null;
  return `${status.message[0]!.toUpperCase()}${status.message.slice(1)}…`;
}
