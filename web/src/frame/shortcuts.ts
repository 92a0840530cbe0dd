/** Keys that work everywhere: Ctrl or Cmd with K searches, with J is a new session, with I the inspector. */

import { useEffect } from 'react';
import { goTo } from '../state/route';
import { view } from '../state/view';

export const SEARCH_FIELD = 'clew-search';

/** To where a session is begun by writing: none is made before. */
export function beginNew(): void {
  goTo({ session: null });
  view.set({ sidebar: false });
  requestAnimationFrame(() => document.querySelector<HTMLElement>('main form textarea')?.focus());
}

export function useShortcuts(): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
      if (event.key === 'k') {
        event.preventDefault();
        view.set({ sidebar: true });
        requestAnimationFrame(() => document.getElementById(SEARCH_FIELD)?.focus());
      } else if (event.key === 'j') {
        event.preventDefault();
        beginNew();
      } else if (event.key === 'i') {
        event.preventDefault();
        view.set(({ inspector }) => ({ inspector: !inspector }));
      }
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
}
