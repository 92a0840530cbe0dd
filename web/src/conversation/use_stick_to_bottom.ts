/** Tracks whether the thread is scrolled to its end, and scrolls there. */

import { type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { StickToBottom } from './stick_to_bottom';
import type { ThreadState } from './thread_state';

export interface End {
  /** The reader has scrolled away from the end. */
  away: boolean;
  toEnd: () => void;
  leave: () => void;
}

export function useStickToBottom(scroller: RefObject<HTMLElement | null>, content: RefObject<HTMLElement | null>, thread: ThreadState): End {
  const [away, setAway] = useState(false);
  const controller = useRef<StickToBottom | null>(null);

  useEffect(() => {
    if (!scroller.current || !content.current) return;
    const stick = new StickToBottom(scroller.current, content.current, {
      get: () => thread.atEnd,
      put: (atEnd) => {
        thread.atEnd = atEnd;
        if (atEnd) setAway(false);
      },
      away: setAway,
    });
    controller.current = stick;
    stick.pin();
    return () => {
      controller.current = null;
      stick.stop();
    };
  }, [scroller, content, thread]);

  // New rows are measured later; this is close enough until then.
  useLayoutEffect(() => controller.current?.pin());

  const toEnd = useCallback(() => {
    thread.atEnd = true;
    setAway(false);
    controller.current?.pin();
  }, [thread]);
  const leave = useCallback(() => {
    thread.atEnd = false;
    controller.current?.leave();
  }, [thread]);
  return { away, toEnd, leave };
}
