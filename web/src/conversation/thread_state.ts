/** State of the thread's rows, which unmount while scrolling: what is open, drafts, and the message to scroll to. */

import { createContext, useCallback, useContext, useState } from 'react';
import type { Focus } from '../state/conversation_state';
import { Store } from '../state/store';

/** A message to scroll to, and the timeline item that contains it. */
export interface ScrollTarget extends Focus {
  within: string;
}

export class ThreadState {
  readonly store = new Store<{ editing: string | null; scrollTarget: ScrollTarget | null }>({ editing: null, scrollTarget: null });
  readonly opened = new Map<string, boolean>();
  /** Unsent text: edits, reasons, answers. */
  readonly drafts = new Map<string, string>();
  /** The last scroll request that was completed. */
  scrolled = 0;
  /** Whether the reader is at the end. */
  atEnd = true;
}

export const ThreadStateContext = createContext<ThreadState | null>(null);

export function useThreadState(): ThreadState {
  const thread = useContext(ThreadStateContext);
  if (!thread) throw new Error('this component must be rendered inside a thread');
  return thread;
}

export function useOpen(key: string, initial = false): [boolean, (open: boolean) => void] {
  const thread = useThreadState();
  const [open, setOpen] = useState(() => thread.opened.get(key) ?? initial);
  const change = useCallback(
    (next: boolean) => {
      thread.opened.set(key, next);
      setOpen(next);
    },
    [thread, key],
  );
  return [open, change];
}

export function useDraft(key: string, initial = ''): [string, (text: string) => void] {
  const thread = useThreadState();
  const [text, setText] = useState(() => thread.drafts.get(key) ?? initial);
  const change = useCallback(
    (next: string) => {
      thread.drafts.set(key, next);
      setText(next);
    },
    [thread, key],
  );
  return [text, change];
}
