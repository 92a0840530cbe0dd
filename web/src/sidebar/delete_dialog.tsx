/** Asked before a session goes for good. */

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
  const keep = useRef<HTMLButtonElement>(null);
  // After the dialog has opened and taken the focus itself.
  useEffect(() => keep.current?.focus(), []);
  const live = ['busy', 'retrying'].includes(stateOf(session.status));

  const remove = async () => {
    setDeleting(true);
    try {
      await host.remove(session.id);
      onClose(true);
    } catch {
      // The banner says why; the dialog stays, so that it can be tried again.
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
          All its messages go, the rewound and summarised ones too, with its queue, its files and its subagents. This cannot be undone.
        </p>
        {live && <p className="text-warn">It is working right now. Deleting it stops that first.</p>}
        <p className="text-quiet">{branches > 0 ? 'Branches made from it stay.' : 'Archive it instead to keep it out of sight.'}</p>
        <div className="flex flex-wrap justify-end gap-2">
          <Button ref={keep} onClick={() => onClose(false)}>
            Keep it
          </Button>
          <Button look="danger" icon="trash" disabled={deleting} onClick={() => void remove()}>
            {deleting ? 'Deleting…' : 'Delete for good'}
          </Button>
        </div>
      </div>
    </Dialog>
  );
}
