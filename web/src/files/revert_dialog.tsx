/** Asks for confirmation before changes are reverted. */

import { useEffect, useRef, useState } from 'react';
import type { ChangedFile } from '@clew/client';
import { isProblem } from '../api/client';
import { errorText } from '../api/problem';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { Dialog } from '../ui/dialog';

export interface Reverting {
  path: string;
  kind: ChangedFile['kind'];
  /** The turn whose changes are reverted; empty is the whole session. */
  turn: string;
  /** The header of a hunk; without it the whole file. */
  hunk?: string;
}

export function RevertDialog({ reverting: { path, kind, turn, hunk }, onClose }: { reverting: Reverting; onClose: () => void }) {
  const conversation = useThis();
  const [problem, setProblem] = useState<unknown>(null);
  const [busy, setBusy] = useState(false);
  const cancel = useRef<HTMLButtonElement>(null);
  // After the dialog has opened and moved the focus.
  useEffect(() => cancel.current?.focus(), []);
  const revert = async (force: boolean) => {
    setBusy(true);
    try {
      await conversation.revert(path, { hunk, turn, force });
      onClose();
    } catch (error) {
      setProblem(error);
      setBusy(false);
    }
  };
  const canForce = problem !== null && hunk === undefined && isProblem(problem, 'conflict');
  return (
    <Dialog title={hunk ? 'Revert these lines?' : 'Revert this file?'} onClose={onClose}>
      <div className="grid gap-3">
        <p dir="ltr" className="font-mono text-sm [overflow-wrap:anywhere]">
          {path} {hunk && <span className="text-quiet">{hunk}</span>}
        </p>
        <p className="text-quiet">
          {hunk
            ? 'These lines go back to what they were before.'
            : kind === 'added'
              ? 'The agent created this file; it will be deleted.'
              : `The file goes back to what it was before ${turn ? 'this turn' : 'the session changed it'}.`}{' '}
          The present files are saved first; you can undo this.
        </p>
        {problem !== null && (
          <p role="alert" className="text-sm break-words text-bad">
            {errorText(problem)}.
          </p>
        )}
        <div className="flex flex-wrap justify-end gap-2">
          <Button ref={cancel} onClick={onClose}>
            Cancel
          </Button>
          <Button tone="danger" disabled={busy} onClick={() => void revert(canForce)}>
            {canForce ? 'Revert anyway' : 'Revert'}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
