/** What was just put away, or brought back, and the way to have it as it was. */

import { useEffect, useRef } from 'react';
import { Button, IconButton } from '../ui/button';
import { focusNext } from '../ui/focus_next';
import { count } from '../ui/words';

interface Props {
  what: { ids: string[]; archived: boolean };
  /** Whether what had the focus is gone with them, and the focus comes here. */
  focused: boolean;
  onUndo: () => void;
  onDone: () => void;
}

export function ArchivedLine({ what, focused, onUndo, onDone }: Props) {
  const undo = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    // The bar that had the focus is gone; what one may want next is here.
    if (!focused) return undefined;
    const frame = focusNext(() => undo.current);
    return () => cancelAnimationFrame(frame);
  }, [what, focused]);
  return (
    <div className="flex items-center gap-1 border-b border-line bg-info-soft px-3 py-1 text-sm">
      <span role="status" className="me-auto">
        {count(what.ids.length, 'session')} {what.archived ? 'archived' : 'back in the list'}
      </span>
      <Button ref={undo} look="quiet" onClick={onUndo}>
        Undo
      </Button>
      <IconButton label="Dismiss" icon="close" className="size-7" onClick={onDone} />
    </div>
  );
}
