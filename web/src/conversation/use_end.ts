/** The end of the thread: a reader who is there stays there while it grows; one who left is left alone. */

import { type RefObject, useCallback, useEffect, useLayoutEffect, useState } from 'react';
import type { Memory } from './memory';

/** So near counts as being at the end. */
const NEAR = 48;
/** How long after a key, a wheel or a finger a move is taken as the reader's own. */
const INTENT_MS = 400;
/** How long what was opened may take to be there. */
const OPENING_MS = 1500;

export interface End {
  /** The reader is somewhere else. */
  away: boolean;
  toEnd: () => void;
  leave: () => void;
}

export function useEnd(scroller: RefObject<HTMLElement | null>, content: RefObject<HTMLElement | null>, memory: Memory): End {
  const [away, setAway] = useState(false);

  const pin = useCallback(() => {
    const element = scroller.current;
    if (element && memory.atEnd) element.scrollTop = element.scrollHeight;
  }, [scroller, memory]);

  const put = useCallback(
    (atEnd: boolean) => {
      memory.atEnd = atEnd;
      setAway(!atEnd);
    },
    [memory],
  );

  useEffect(() => {
    const element = scroller.current;
    if (!element || !content.current) return;
    let top = element.scrollTop;
    let height = element.scrollHeight;
    let intent = -INTENT_MS;
    const isNear = () => element.scrollHeight - element.scrollTop - element.clientHeight <= NEAR;
    const onIntent = () => {
      intent = performance.now();
    };
    const onScroll = () => {
      const moved = element.scrollTop - top;
      const shrank = element.scrollHeight < height;
      top = element.scrollTop;
      height = element.scrollHeight;
      if (isNear()) {
        if (moved > 0) put(true);
      }
      // Going up is leaving, unless what is above only turned out to be smaller than it was thought to be.
      else if (moved < -1 && (!shrank || performance.now() - intent < INTENT_MS)) put(false);
    };
    // What a reader opens grows below the line they pressed: that line stays where it is.
    const onClick = (event: MouseEvent) => {
      if (!(event.target as Element).closest('[aria-expanded]') || !memory.atEnd) return;
      memory.atEnd = false;
      setTimeout(() => put(isNear()), OPENING_MS);
    };
    const sizes = new ResizeObserver(() => {
      pin();
      if (!memory.atEnd) setAway(!isNear());
    });
    sizes.observe(element);
    sizes.observe(content.current);
    element.addEventListener('scroll', onScroll, { passive: true });
    element.addEventListener('click', onClick, true);
    for (const kind of ['wheel', 'touchmove', 'keydown', 'pointerdown'] as const) element.addEventListener(kind, onIntent, { passive: true });
    return () => {
      sizes.disconnect();
      element.removeEventListener('scroll', onScroll);
      element.removeEventListener('click', onClick, true);
      for (const kind of ['wheel', 'touchmove', 'keydown', 'pointerdown'] as const) element.removeEventListener(kind, onIntent);
    };
  }, [scroller, content, pin, put, memory]);

  // What was just drawn is measured later; until then this is near enough.
  useLayoutEffect(pin);

  const toEnd = useCallback(() => {
    put(true);
    pin();
  }, [put, pin]);
  const leave = useCallback(() => put(false), [put]);
  return { away, toEnd, leave };
}
