/** Esc stops the running turn, wherever the focus is in the conversation, unless a field or a dialog handles the key. */

import { useEffect } from 'react';

export function useEscape(active: boolean, onEscape: () => void): void {
  useEffect(() => {
    if (!active) return;
    const onKey = (event: KeyboardEvent) => {
      if (event.key !== 'Escape' || event.defaultPrevented || document.querySelector('dialog[open]')) return;
      const at = document.activeElement;
      const elsewhere = at && at !== document.body && (!at.closest('main') || at.matches('input, textarea, select, [contenteditable="true"]'));
      if (!elsewhere) onEscape();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [active, onEscape]);
}
