/** The icon of the tab: the logo with a dot for the state of the session. */

import type { StateName } from '../sidebar/session_state';

const DOTS: Record<StateName | 'done', string | null> = { idle: null, busy: '#2f6fb3', retrying: '#2f6fb3', waiting: '#b7791f', error: '#c0362c', done: '#2f8a4d' };
const BALL = '<circle cx="14" cy="14" r="10"/><path d="M5 10c6-3 13-1 18 6M4.500 16c6-4 12-3 17 4M8 22c4-7 9-12 13-13"/><path d="M22 20c3 1 4 4 2 6s-1 4 4 3"/>';

export function tabIcon(state: StateName, unseen: boolean): string {
  const dot = DOTS[unseen && state === 'idle' ? 'done' : state];
  const mark = dot ? `<circle cx="24" cy="8" r="7" fill="${dot}" stroke="none"/>` : '';
  return `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32" fill="none" stroke="#b4541f" stroke-width="2.4" stroke-linecap="round">${BALL}${mark}</svg>`)}`;
}
