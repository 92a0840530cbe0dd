/** What the thread remembers of its rows: they come and go while it is scrolled, and what a reader opened stays open. */

import { createContext, useCallback, useContext, useState } from 'react';
import type { Focus } from '../state/conversation_state';
import { Store } from '../state/store';

/** A message to be seen, and the item of the timeline it is in. */
export interface Landing extends Focus {
  within: string;
}

export class Memory {
  readonly store = new Store<{ editing: string | null; landing: Landing | null }>({ editing: null, landing: null });
  readonly opened = new Map<string, boolean>();
  /** What was typed and not yet sent: edits, reasons, answers. */
  readonly drafts = new Map<string, string>();
  /** Landings that have been carried out. */
  landed = 0;
  /** Whether the reader is at the end. */
  atEnd = true;
}

export const MemoryContext = createContext<Memory | null>(null);

export function useMemory(): Memory {
  const memory = useContext(MemoryContext);
  if (!memory) throw new Error('no thread around this component');
  return memory;
}

export function useOpen(key: string, initial = false): [boolean, (open: boolean) => void] {
  const memory = useMemory();
  const [open, setOpen] = useState(() => memory.opened.get(key) ?? initial);
  const change = useCallback(
    (next: boolean) => {
      memory.opened.set(key, next);
      setOpen(next);
    },
    [memory, key],
  );
  return [open, change];
}

export function useDraft(key: string, initial = ''): [string, (text: string) => void] {
  const memory = useMemory();
  const [text, setText] = useState(() => memory.drafts.get(key) ?? initial);
  const change = useCallback(
    (next: string) => {
      memory.drafts.set(key, next);
      setText(next);
    },
    [memory, key],
  );
  return [text, change];
}
