/** Sends text that is typed or pasted outside of any field to the composer, from its first character. */

import { useEffect } from 'react';
import { view } from '../state/view';
import { composerField, focusQuietly } from '../ui/composer_field';

const FIELDS = 'textarea, [contenteditable="true"], input:not([type="checkbox"], [type="radio"])';
/** Selects that ignore letter keys: a letter would change the session's permissions. */
const CHOICES = 'form[aria-label^="Write a message"] select, [data-request] select';

export function useTypeAnywhere(): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const at = document.activeElement;
      if (event.defaultPrevented || !isText(event) || (at && acceptsText(at))) return;
      // A dialog that is opening gets the keys already.
      if (view.get().dialog !== null || document.querySelector('dialog[open], [role="menu"]')) return;
      // Elsewhere Space presses a button or scrolls.
      if (event.key === ' ' && at !== document.body && !at?.matches('[data-request]')) return;
      // The browser then inserts the character, or pastes, into the focused field.
      focusQuietly(composerField(at?.closest('main, section[aria-label="Side conversation"]')) ?? composerField());
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
}

function acceptsText(at: Element): boolean {
  return at instanceof HTMLSelectElement ? !at.matches(CHOICES) || isOpen(at) : at.matches(FIELDS);
}

/** Browsers without `:open` count as open. */
function isOpen(select: HTMLSelectElement): boolean {
  try {
    return select.matches(':open');
  } catch {
    return true;
  }
}

function isText(event: KeyboardEvent): boolean {
  if (event.isComposing) return false;
  const command = event.ctrlKey || event.metaKey;
  // AltGr types characters but is reported as Ctrl+Alt on some systems.
  if (event.getModifierState('AltGraph')) return event.key.length === 1;
  if (command) return !event.altKey && event.key.toLowerCase() === 'v';
  // `Process` starts an IME composition; a dead key combines with the next one.
  return !event.altKey && (event.key.length === 1 || event.key === 'Process' || event.key === 'Dead');
}
