/** Text that is typed or pasted while no field has the focus goes into the composer, from its first character on. */

import { useEffect } from 'react';
import { view } from '../state/view';
import { composerField, focusQuietly } from '../ui/composer_field';

const FIELDS = 'textarea, [contenteditable="true"], input:not([type="checkbox"], [type="radio"])';
/** Selects that ignore letters: a letter would change what the session may do. */
const CHOICES = 'form[aria-label^="Write a message"] select, [data-request] select';

export function useTypeAnywhere(): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const at = document.activeElement;
      if (event.defaultPrevented || !isText(event) || (at && takesText(at))) return;
      // A dialog that is about to open gets the keys already.
      if (view.get().opened !== null || document.querySelector('dialog[open], [role="menu"]')) return;
      // Elsewhere Space presses a button, or scrolls.
      if (event.key === ' ' && at !== document.body && !at?.matches('[data-request]')) return;
      // The browser writes the character, or pastes, into what has the focus after this.
      focusQuietly(composerField(at?.closest('main, section[aria-label="Conversation beside"]')) ?? composerField());
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, []);
}

function takesText(at: Element): boolean {
  return at instanceof HTMLSelectElement ? !at.matches(CHOICES) || isOpen(at) : at.matches(FIELDS);
}

/** A browser without `:open` is assumed to have it open. */
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
  // AltGr, which writes characters, counts as Ctrl with Alt on some systems.
  if (event.getModifierState('AltGraph')) return event.key.length === 1;
  if (command) return !event.altKey && event.key.toLowerCase() === 'v';
  // `Process` begins what is composed of several keys; a dead key writes with the next one.
  return !event.altKey && (event.key.length === 1 || event.key === 'Process' || event.key === 'Dead');
}
