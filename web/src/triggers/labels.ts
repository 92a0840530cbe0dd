/** Labels for triggers. */

import type { Routing, Schedule } from '@clew/client';
import { moment } from '../ui/format';

/** Return the session that its turns run in. */
export function whereTo(routing: Routing | undefined): string {
  if (routing?.session_id) return 'into one session';
  if (routing?.label) return `into the session labelled ${routing.label}`;
  if (routing?.key) return `into the session with key ${routing.key}`;
  return 'into a new session each time';
}

/** Return the next time it fires, or why it does not. */
export function nextFire(schedule: Pick<Schedule, 'paused' | 'next_fire_at'>): string {
  if (schedule.paused) return 'paused';
  return schedule.next_fire_at ? `next ${moment(schedule.next_fire_at)}` : 'will not fire again';
}
