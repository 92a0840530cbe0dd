/** A dot for the state of a session; none while it is idle. */

import type { Status } from '../api/types';
import { STATE_LABELS, type StateName, stateOf } from './session_state';

const CLASSES: Record<Exclude<StateName, 'idle'>, string> = {
  busy: 'bg-info animate-pulse',
  retrying: 'bg-warn animate-pulse',
  waiting: 'border-2 border-thread',
  error: 'bg-bad',
};

export function StateDot({ status }: { status: Status }) {
  const state = stateOf(status);
  if (state === 'idle') return null;
  return <span role="img" aria-label={STATE_LABELS[state]} title={STATE_LABELS[state]} className={`inline-block size-2 shrink-0 rounded-full ${CLASSES[state]}`} />;
}
