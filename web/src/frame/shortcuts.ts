/** Keys that work everywhere: Ctrl or Cmd with K is the palette, with B the list, with J a new session, with I the inspector. */

import { useEffect } from 'react';
import { flushSync } from 'react-dom';
import { goTo } from '../state/route';
import { toggleList, view } from '../state/view';
import { composerField } from '../ui/composer_field';
import { focusNext } from '../ui/focus_next';

export const SEARCH_FIELD = 'clew-search';

/** To where a session is begun by writing: none is made before. */
export function beginNew(): void {
  goTo({ session: null });
  view.set({ sidebar: false });
  focusNext(() => composerField());
}

/** To the field that searches all sessions, wherever the list is. */
export function beginSearch(): void {
  // Drawn at once: what is pressed next is meant for the field, and who goes on from it is not brought back.
  flushSync(() => view.set({ sidebar: true, collapsed: false }));
  document.getElementById(SEARCH_FIELD)?.focus();
}

const KEYS: Record<string, () => void> = {
  k: () => view.set(({ opened }) => ({ opened: opened === 'palette' ? null : 'palette' })),
  'shift f': beginSearch,
  b: toggleList,
  j: beginNew,
  i: () => view.set(({ inspector }) => ({ inspector: !inspector })),
};

export function useShortcuts(): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
      const act = KEYS[`${event.shiftKey ? 'shift ' : ''}${event.key.toLowerCase()}`];
      if (!act) return;
      event.preventDefault();
      act();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
}
