/** Keys that answer what waits, from wherever nothing is being written. A key that was on its way to something else, when
 *  it began to wait or the last answer was given, answers nothing. */

import { type RefObject, useEffect, useRef, useState } from 'react';
import { view } from '../state/view';
import { useMemory } from './memory';

/** So soon after a question was shown nobody has read it: what is typed then, without a pause, is no answer. */
const MOMENT_MS = 300;
/** So much of a question, in pixels, has to be in sight. */
const ENOUGH = 48;

/** Whether it has been in sight for a moment in which nothing was typed. */
export function useArmed(id: string): boolean {
  const memory = useMemory();
  const [armed, setArmed] = useState(() => memory.armed.has(id));
  useEffect(() => {
    if (armed) return;
    const arm = () => {
      memory.armed.add(id);
      setArmed(true);
    };
    let timer = setTimeout(arm, MOMENT_MS);
    const typed = () => {
      clearTimeout(timer);
      timer = setTimeout(arm, MOMENT_MS);
    };
    window.addEventListener('keydown', typed, true);
    return () => {
      clearTimeout(timer);
      window.removeEventListener('keydown', typed, true);
    };
  }, [memory, id, armed]);
  return armed;
}

/** `answer` does what a key means, and says whether it means anything. Capitals are for Shift, not for Caps Lock. */
export function useAnswerKeys(ref: RefObject<HTMLElement | null>, armed: boolean, answer: (key: string) => boolean): void {
  const memory = useMemory();
  const latest = useRef(answer);
  useEffect(() => {
    latest.current = answer;
  });
  useEffect(() => {
    if (!armed) return;
    const onKey = (event: KeyboardEvent) => {
      const element = ref.current;
      if (!element || event.defaultPrevented || event.repeat || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
      if (!takesKeys(element) || meantOne(element) !== element || performance.now() - memory.answered < MOMENT_MS) return;
      if (!isInSight(element)) {
        // What cannot be seen is not answered: it is shown first.
        if (!/^[yspn]$/i.test(event.key)) return;
        element.scrollIntoView({ block: 'nearest' });
        element.focus({ preventScroll: true });
      } else if (!latest.current(event.shiftKey ? event.key.toUpperCase() : event.key.toLowerCase())) {
        return;
      } else {
        memory.answered = performance.now();
      }
      event.preventDefault();
      event.stopPropagation();
    };
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [memory, ref, armed]);
}

/** Whether keys are free to answer it: of a pane that has the focus, or of the page's own conversation. */
function takesKeys(element: HTMLElement): boolean {
  const at = document.activeElement;
  // A dialog that is still on its way has the keys already.
  if (view.get().opened !== null || document.querySelector('dialog[open], [role="menu"]') || (at && takesLetters(at))) return false;
  const pane = paneOf(element);
  return (at?.closest('[data-waits]') && pane.contains(at)) || (pane.matches('main') && (!at || at === document.body || pane.contains(at))) || false;
}

function paneOf(element: HTMLElement): HTMLElement {
  return element.closest<HTMLElement>('main, section') ?? document.body;
}

/** Of all that waits in a pane the one that keys are about: of those in sight that which has the focus, else the first. */
function meantOne(element: HTMLElement): HTMLElement | undefined {
  const all = [...paneOf(element).querySelectorAll<HTMLElement>('[data-waits]')];
  const within = document.activeElement?.closest<HTMLElement>('[data-waits]') ?? undefined;
  const seen = all.filter(isInSight);
  return within && seen.includes(within) ? within : (seen[0] ?? (within && all.includes(within) ? within : all[0]));
}

const MOVES = ['scroll', 'resize', 'focusin', 'focusout'] as const;

/** Whether keys answer it, as they would be pressed now: only then it shows them. */
export function useMeant(ref: RefObject<HTMLElement | null>): boolean {
  const [meant, setMeant] = useState(false);
  useEffect(() => {
    let asked = 0;
    const look = () => {
      asked = 0;
      if (ref.current) setMeant(takesKeys(ref.current) && meantOne(ref.current) === ref.current);
    };
    const soon = () => {
      asked ||= requestAnimationFrame(look);
    };
    // Requests come and go with what their pane draws.
    const drawn = new MutationObserver(soon);
    if (ref.current) drawn.observe(ref.current.closest('[role="region"]') ?? document.body, { childList: true, subtree: true });
    for (const move of MOVES) window.addEventListener(move, soon, { capture: true, passive: true });
    look();
    return () => {
      cancelAnimationFrame(asked);
      drawn.disconnect();
      for (const move of MOVES) window.removeEventListener(move, soon, { capture: true });
    };
  }, [ref]);
  return meant;
}

function takesLetters(at: Element): boolean {
  if (at instanceof HTMLSelectElement) return !at.closest('[data-waits]') || isOpen(at);
  return at.matches('input, textarea, [contenteditable="true"]');
}

/** Whether a choice is unfolded, so that letters go to it; a browser that does not tell is taken to have it so. */
function isOpen(select: HTMLSelectElement): boolean {
  try {
    return select.matches(':open');
  } catch {
    return true;
  }
}

function isInSight(element: HTMLElement): boolean {
  const { top, bottom } = element.getBoundingClientRect();
  // What the list has scrolled away lies behind the composer.
  const list = element.closest('[role="region"]')?.getBoundingClientRect() ?? { top: 0, bottom: window.innerHeight };
  return Math.min(bottom, list.bottom) - Math.max(top, list.top) >= Math.min(ENOUGH, bottom - top);
}
