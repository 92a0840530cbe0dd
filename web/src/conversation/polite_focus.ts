/** Moves the focus to what has just begun to wait for the reader, unless that would take a word out of their hands. */

import { type RefObject, useEffect, useLayoutEffect } from 'react';
import { focusSoon } from './focus_soon';
import { useMemory } from './memory';

export function usePoliteFocus(ref: RefObject<HTMLElement | null>, id: string, armed: boolean): void {
  const memory = useMemory();
  // A row that is drawn anew while it has the focus gets it back.
  useLayoutEffect(
    () => () => {
      if (ref.current?.contains(document.activeElement)) memory.met.delete(id);
    },
    [memory, ref, id],
  );
  useEffect(() => {
    // Whoever is about to write has a moment to begin: what is typed by then is theirs.
    if (!armed || memory.met.has(id)) return;
    const may = () => memory.atEnd && isFree(document.activeElement);
    // A reader who is busy elsewhere is not asked a second time.
    if (!may()) memory.met.add(id);
    else return focusSoon(() => ref.current, may, () => memory.met.add(id));
  }, [memory, ref, id, armed]);
}

/** What was answered gives the focus to the next thing that waits in its pane, or back to where one writes. */
export function passOn(from: HTMLElement | null): () => void {
  const pane = from?.closest('main, section');
  const answered = from?.dataset.waits;
  return () => {
    const at = document.activeElement;
    if (!pane || (at && at !== document.body && !at.closest('article'))) return;
    const waiting = [...pane.querySelectorAll<HTMLElement>('[data-waits]')].find((other) => other.dataset.waits !== answered);
    (waiting ?? pane.querySelector<HTMLElement>('textarea[data-home]'))?.focus({ preventScroll: waiting === undefined });
  };
}

function isFree(active: Element | null): boolean {
  if (!active || active === document.body) return true;
  if (active.closest('dialog, [role="menu"], [role="group"]')) return false;
  if (active instanceof HTMLTextAreaElement) return active.value === '';
  return !(active instanceof HTMLInputElement || active instanceof HTMLSelectElement);
}
