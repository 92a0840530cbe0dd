/** The state of a session, as shown in the list. */

import type { Status } from '../api/types';

export type StateName = 'idle' | 'busy' | 'retrying' | 'waiting' | 'error';

export function stateOf(status: Status): StateName {
  if (status.state === 'idle') return status.waiting?.length ? 'waiting' : 'idle';
  return status.state;
}

export const STATE_LABELS: Record<StateName, string> = {
  idle: 'Idle',
  busy: 'Working',
  retrying: 'Retrying',
  waiting: 'Waiting for you',
  error: 'Failed',
};
