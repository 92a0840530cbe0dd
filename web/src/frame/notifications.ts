/** Desktop notifications when a session is waiting or done while this page is hidden. */

import { useEffect, useRef } from 'react';
import type { Session } from '../api/types';
import { type StateName, stateOf } from '../sidebar/session_state';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { view } from '../state/view';

const EVENTS: Partial<Record<StateName, string>> = { waiting: 'is waiting for you', error: 'failed', idle: 'is done' };

/** Return the text for a state change, or null if it is not worth a notification. */
export function notificationText(before: StateName, now: StateName, title: string): string | null {
  // A session may be waiting before it was ever seen busy.
  const wasBusy = before === 'busy' || before === 'retrying' || (before === 'idle' && now === 'waiting');
  return wasBusy && EVENTS[now] ? `${title} ${EVENTS[now]}` : null;
}

/** Ask the browser for permission if needed. */
export async function requestNotifications(): Promise<boolean> {
  if (!('Notification' in window)) return false;
  return (Notification.permission === 'granted' ? 'granted' : await Notification.requestPermission()) === 'granted';
}

export function useNotifications(): void {
  const host = useHost();
  const sessions = useStore(host.store, (state) => state.sessions);
  const enabled = useStore(view, (state) => state.notices);
  const known = useRef(new Map<string, StateName>());
  useEffect(() => {
    const before = known.current;
    known.current = new Map(sessions.map((session) => [session.id, stateOf(session.status)]));
    if (!enabled || !document.hidden || !('Notification' in window) || Notification.permission !== 'granted') return;
    for (const session of sessions) notify(session, before.get(session.id));
  }, [sessions, enabled]);
}

function notify(session: Session, before: StateName | undefined): void {
  const text = before === undefined ? null : notificationText(before, stateOf(session.status), session.title ?? 'A session');
  if (text === null) return;
  // One notification per session: a newer one replaces it.
  const notice = new Notification('clew', { body: text, tag: session.id });
  notice.onclick = () => {
    window.focus();
    goTo({ session: session.id });
    notice.close();
  };
}
