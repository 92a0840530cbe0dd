/** Moves the focus to what has just begun to wait for the reader, unless that would take a word out of their hands. */

import { type RefObject, useEffect } from 'react';
import { useMemory } from './memory';

export function usePoliteFocus(ref: RefObject<HTMLElement | null>, id: string): void {
  const memory = useMemory();
  useEffect(() => {
    if (memory.met.has(id)) return;
    memory.met.add(id);
    if (!memory.atEnd || !isFree(document.activeElement)) return;
    ref.current?.focus({ preventScroll: true });
  }, [memory, ref, id]);
}

function isFree(active: Element | null): boolean {
  if (!active || active === document.body) return true;
  if (active.closest('dialog, [role="menu"], [role="group"]')) return false;
  if (active instanceof HTMLTextAreaElement) return active.value === '';
  return !(active instanceof HTMLInputElement || active instanceof HTMLSelectElement);
}
