/** The title of the tab: the session and its state. */

import { useEffect, useRef, useState } from 'react';
import type { Session } from '../api/types';
import { type StateName, stateOf } from '../sidebar/session_state';
import { tabIcon } from './tab_icon';

const MARKS: Record<StateName, string> = { idle: '', busy: '… ', retrying: '… ', waiting: '❗ ', error: '✗ ' };
/** The mark of a session that finished while the tab was hidden. */
const DONE = '✓ ';

export function tabTitle(title: string | null, state: StateName, unseen: boolean): string {
  return `${MARKS[state] || (unseen ? DONE : '')}${title ? `${title} · clew` : 'clew'}`;
}

export function useTabTitle(session: Session | undefined): void {
  const state = session ? stateOf(session.status) : 'idle';
  const [unseen, setUnseen] = useState(false);
  const before = useRef<StateName>(state);
  useEffect(() => {
    if (before.current !== 'idle' && state === 'idle' && document.hidden) setUnseen(true);
    before.current = state;
  }, [state]);
  useEffect(() => {
    const onVisible = () => !document.hidden && setUnseen(false);
    document.addEventListener('visibilitychange', onVisible);
    return () => document.removeEventListener('visibilitychange', onVisible);
  }, []);
  useEffect(() => {
    document.title = tabTitle(session?.title ?? null, state, unseen);
    document.querySelector('link[rel=icon]')?.setAttribute('href', tabIcon(state, unseen));
  }, [session?.title, state, unseen]);
}
