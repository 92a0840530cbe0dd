/** Accepts an answer to a request only if it was deliberate: for presses its buttons have not moved for a while, for keys they have been visible. */

import { type KeyboardEvent, type MouseEvent, type RefObject, useCallback, useEffect, useRef, useState } from 'react';
import { composerField, focusQuietly } from '../ui/composer_field';

/** Time that a request must be unchanged before it can be answered: less is not enough to read it. */
const SETTLED_MS = 500;
const SAMPLE_MS = 100;
/** Pixels of the buttons that must be visible. */
const MIN_VISIBLE_PX = 24;

/** Tracks how long a value has been unchanged. */
class Steady {
  private value: string | null = null;
  private since = 0;

  /** Whether it has been this value, and not null, for long enough. */
  isSteady(value: string | null): boolean {
    const now = performance.now();
    if (value !== this.value) [this.value, this.since] = [value, now];
    return value !== null && now - this.since >= SETTLED_MS;
  }
}

/** Guard the buttons in `ref`. The wait restarts when `asked` changes. */
export function useRequestGuard(ref: RefObject<HTMLElement | null>, asked: string) {
  const [position] = useState(() => new Steady());
  const [visible] = useState(() => new Steady());
  const pressed = useRef(false);
  const [ready, setReady] = useState({ presses: false, keys: false });
  // Checked at the press as well: the buttons may have moved since the last sample.
  const takesPresses = useCallback(() => position.isSteady(positionOf(ref.current, asked)), [position, ref, asked]);
  // A key goes to the focused request wherever that has moved, so only its content must be steady.
  const takesKeys = useCallback(() => visible.isSteady(contentOf(ref.current, asked)), [visible, ref, asked]);
  useEffect(() => {
    const sample = () => {
      const [presses, keys] = [takesPresses(), takesKeys()];
      setReady((before) => (before.presses === presses && before.keys === keys ? before : { presses, keys }));
    };
    sample();
    const timer = setInterval(sample, SAMPLE_MS);
    document.addEventListener('visibilitychange', sample);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', sample);
    };
  }, [takesPresses, takesKeys]);
  const guard = {
    onPointerDownCapture: () => {
      pressed.current = takesPresses();
    },
    onClickCapture: (event: MouseEvent) => {
      const aimed = isKeyClick(event) ? takesKeys() && (event.target === document.activeElement || takesPresses()) : pressed.current;
      pressed.current = false;
      if (aimed) return;
      event.preventDefault();
      event.stopPropagation();
      ref.current?.scrollIntoView({ block: 'nearest' });
    },
    // A key that is held down was not meant for this button.
    onKeyDownCapture: (event: KeyboardEvent) => {
      if (event.repeat && (event.key === 'Enter' || event.key === ' ')) event.preventDefault();
    },
  };
  return { ready, takesKeys, guard };
}

/** Whether a button was pressed by a key or a screen reader. */
export function isKeyClick(event: MouseEvent): boolean {
  return event.detail === 0;
}

/** Move the focus back to the composer on Escape. Returns whether the key was Escape. */
export function leaveByEscape(event: KeyboardEvent<HTMLElement>): boolean {
  if (event.key !== 'Escape' || event.nativeEvent.isComposing) return false;
  event.preventDefault();
  event.stopPropagation();
  focusQuietly(composerField(paneOf(event.currentTarget)));
  return true;
}

/** Return a function that moves the focus to the composer after an answer, unless the user has focused something else. */
export function returnFocus(from: HTMLElement | null): () => void {
  const pane = paneOf(from);
  // The browser may move the focus to one of these when the request is removed.
  const around: Element[] = [];
  for (let at = from; at && at !== pane; at = at.parentElement) around.push(at);
  return () => {
    const at = document.activeElement;
    if (!at || at === document.body || from?.contains(at) || around.includes(at)) focusQuietly(composerField(pane));
  };
}

export function paneOf(element: HTMLElement | null): HTMLElement | null {
  return element?.closest<HTMLElement>('main, section') ?? null;
}

/** Return the position within the list and the list's height: scrolling does not change it, growth does. */
function positionOf(element: HTMLElement | null, asked: string): string | null {
  if (!element || document.visibilityState === 'hidden') return null;
  const { top, left, width, height } = element.getBoundingClientRect();
  const list = element.closest('[role="region"]');
  const within = top - (list?.getBoundingClientRect().top ?? 0) + (list?.scrollTop ?? 0);
  return JSON.stringify([asked, list?.scrollHeight, ...[within, left, width, height].map(Math.round)]);
}

/** Return the request and the height of its content above the buttons, or null if the buttons are not visible. */
function contentOf(element: HTMLElement | null, asked: string): string | null {
  if (!element || !isVisible(element)) return null;
  const request = element.closest('[data-request]');
  return JSON.stringify([asked, request && Math.round(element.getBoundingClientRect().top - request.getBoundingClientRect().top)]);
}

function isVisible(element: HTMLElement): boolean {
  if (document.visibilityState === 'hidden') return false;
  const { top, bottom } = element.getBoundingClientRect();
  // Content scrolled below the list is behind the composer.
  const list = element.closest('[role="region"]')?.getBoundingClientRect() ?? { top: 0, bottom: window.innerHeight };
  const seen = Math.min(bottom, list.bottom) - Math.max(top, list.top);
  return seen > 0 && seen >= Math.min(MIN_VISIBLE_PX, bottom - top);
}
