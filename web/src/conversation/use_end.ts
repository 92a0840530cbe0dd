/** The end of the thread, for the thread: whether the reader is elsewhere, and the ways there and away. */

import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { EndKeeper } from './end_keeper';
import type { Memory } from './memory';

export interface End {
  /** The reader is somewhere else. */
  away: boolean;
  toEnd: () => void;
  leave: () => void;
}

export function useEnd(scroller: RefObject<HTMLElement | null>, content: RefObject<HTMLElement | null>, memory: Memory): End {
  const [away, setAway] = useState(false);
  const keeper = useRef<EndKeeper | null>(null);

  useEffect(() => {
    if (!scroller.current || !content.current) return;
    const made = new EndKeeper(scroller.current, content.current, {
      get: () => memory.atEnd,
      put: (atEnd) => {
        memory.atEnd = atEnd;
        if (atEnd) setAway(false);
      },
      away: setAway,
    });
    keeper.current = made;
    made.pin();
    return () => {
      keeper.current = null;
      made.stop();
    };
  }, [scroller, content, memory]);

  // What was just drawn is measured later; until then this is near enough.
  useLayoutEffect(() => keeper.current?.pin());

  const toEnd = useCallback(() => {
    memory.atEnd = true;
    setAway(false);
    keeper.current?.pin();
  }, [memory]);
  const leave = useCallback(() => {
    memory.atEnd = false;
    keeper.current?.leave();
  }, [memory]);
  return { away, toEnd, leave };
}
