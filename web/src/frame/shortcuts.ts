/** Global shortcuts, with Ctrl or Cmd: K palette, B session list, J new session, I inspector. */

import { useEffect } from 'react';
import { flushSync } from 'react-dom';
import { goTo } from '../state/route';
import { toggleList, view } from '../state/view';
import { composerField } from '../ui/composer_field';
import { focusNext } from '../ui/focus_next';

export const SEARCH_FIELD = 'clew-search';

/** Go to the start page; the session is created with its first message. */
export function startNewSession(): void {
  goTo({ session: null });
  view.set({ sidebar: false });
  focusNext(() => composerField());
}

/** Show the session list and focus its search field. */
export function openSearch(): void {
  // Render synchronously, so that the next key goes to the field.
  flushSync(() => view.set({ sidebar: true, collapsed: false }));
  document.getElementById(SEARCH_FIELD)?.focus();
}

const KEYS: Record<string, () => void> = {
  k: () => view.set(({ dialog }) => ({ dialog: dialog === 'palette' ? null : 'palette' })),
  'shift f': openSearch,
  b: toggleList,
  j: startNewSession,
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
