/** A word of the system's own when a session waits or is done and nobody looks at this page: for whoever asked for it. */

import { useEffect, useRef } from 'react';
import type { Session } from '../api/types';
import { type StateName, stateOf } from '../sidebar/session_state';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { view } from '../state/view';

const SAID: Partial<Record<StateName, string>> = { waiting: 'waits for you', error: 'has failed', idle: 'is done' };

/** What is said of a change, or null: only of work that ended or stands still, and never of what was stopped by hand here. */
export function noticeOf(before: StateName, now: StateName, title: string): string | null {
  // One that waits at once is seen to work by nobody.
  const worked = before === 'busy' || before === 'retrying' || (before === 'idle' && now === 'waiting');
  return worked && SAID[now] ? `${title} ${SAID[now]}` : null;
}

/** Asks the browser, where it has to be asked. */
export async function allowNotices(): Promise<boolean> {
  if (!('Notification' in window)) return false;
  return (Notification.permission === 'granted' ? 'granted' : await Notification.requestPermission()) === 'granted';
}

export function useNotices(): void {
  const host = useHost();
  const sessions = useStore(host.store, (state) => state.sessions);
  const wanted = useStore(view, (state) => state.notices);
  const known = useRef(new Map<string, StateName>());
  useEffect(() => {
    const before = known.current;
    known.current = new Map(sessions.map((session) => [session.id, stateOf(session.status)]));
    if (!wanted || !document.hidden || !('Notification' in window) || Notification.permission !== 'granted') return;
    for (const session of sessions) tell(session, before.get(session.id));
  }, [sessions, wanted]);
}

function tell(session: Session, before: StateName | undefined): void {
  const words = before === undefined ? null : noticeOf(before, stateOf(session.status), session.title ?? 'A session');
  if (words === null) return;
  // One for a session: the newer takes the place of the older.
  const notice = new Notification('clew', { body: words, tag: session.id });
  notice.onclick = () => {
    window.focus();
    goTo({ session: session.id });
    notice.close();
  };
}
