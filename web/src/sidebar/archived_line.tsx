/** Shown after archiving or unarchiving, with an undo button. */

import { useEffect, useRef } from 'react';
import { Button, IconButton } from '../ui/button';
import { focusNext } from '../ui/focus_next';
import { count } from '../ui/format';

interface Props {
  what: { ids: string[]; archived: boolean };
  /** Whether to take the focus, because the focused element was removed. */
  focused: boolean;
  onUndo: () => void;
  onDone: () => void;
}

export function ArchivedLine({ what, focused, onUndo, onDone }: Props) {
  const undo = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    // The selection bar had the focus and is gone.
    if (!focused) return undefined;
    const frame = focusNext(() => undo.current);
    return () => cancelAnimationFrame(frame);
  }, [what, focused]);
  return (
    <div className="flex items-center gap-1 border-b border-line bg-info-soft px-3 py-1 text-sm">
      <span role="status" className="me-auto">
        {count(what.ids.length, 'session')} {what.archived ? 'archived' : 'unarchived'}
      </span>
      <Button ref={undo} tone="quiet" onClick={onUndo}>
        Undo
      </Button>
      <IconButton label="Dismiss" icon="close" className="size-7" onClick={onDone} />
    </div>
  );
}
