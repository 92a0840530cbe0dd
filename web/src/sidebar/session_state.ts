/** What a session is doing, in one word and one colour. */

import type { Status } from '../api/types';

export type StateName = 'idle' | 'busy' | 'retrying' | 'waiting' | 'error';

export function stateOf(status: Status): StateName {
  if (status.state === 'idle') return status.waiting?.length ? 'waiting' : 'idle';
  return status.state;
}

export const STATE_WORDS: Record<StateName, string> = {
  idle: 'Idle',
  busy: 'Working',
  retrying: 'Retrying',
  waiting: 'Waiting for you',
  error: 'Failed',
};
