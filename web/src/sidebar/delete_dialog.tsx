/** Asks for confirmation before a session is deleted. */

import { useEffect, useRef, useState } from 'react';
import type { Session } from '../api/types';
import { useHost } from '../state/host';
import { Button } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { stateOf } from './session_state';

interface Props {
  session: Session;
  branches: number;
  onClose: (deleted: boolean) => void;
}

export function DeleteDialog({ session, branches, onClose }: Props) {
  const host = useHost();
  const [deleting, setDeleting] = useState(false);
  const cancel = useRef<HTMLButtonElement>(null);
  // After the dialog has opened and moved the focus.
  useEffect(() => cancel.current?.focus(), []);
  const live = ['busy', 'retrying'].includes(stateOf(session.status));

  const remove = async () => {
    setDeleting(true);
    try {
      await host.remove(session.id);
      onClose(true);
    } catch {
      // The banner shows the error; stay open for another try.
      setDeleting(false);
    }
  };

  return (
    <Dialog title="Delete this session?" onClose={() => onClose(false)}>
      <div className="grid gap-3">
        <p dir="auto" className="font-medium [overflow-wrap:anywhere]">
          {session.title || 'Untitled'}
        </p>
        <p className="text-quiet">
          This deletes all its messages, including rewound and summarised ones, its queue, files and subagents. It cannot be undone.
        </p>
        {live && <p className="text-warn">The session is running; it is stopped first.</p>}
        <p className="text-quiet">{branches > 0 ? 'Its branches are not deleted.' : 'To only hide it, archive it instead.'}</p>
        <div className="flex flex-wrap justify-end gap-2">
          <Button ref={cancel} onClick={() => onClose(false)}>
            Cancel
          </Button>
          <Button tone="danger" icon="trash" disabled={deleting} onClick={() => void remove()}>
            {deleting ? 'Deleting…' : 'Delete permanently'}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
