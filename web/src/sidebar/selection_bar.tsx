/** Actions for all selected sessions. */

import type { Session } from '../api/types';
import { Button } from '../ui/button';

interface Props {
  sessions: readonly Session[];
  onArchive: (ids: string[], archived: boolean) => void;
  onCancel: () => void;
}

export function SelectionBar({ sessions, onArchive, onCancel }: Props) {
  const inList = sessions.filter((session) => session.archived_at === null).map((session) => session.id);
  const archived = sessions.filter((session) => session.archived_at !== null).map((session) => session.id);
  return (
    <div role="group" aria-label="Selected sessions" className="sticky top-0 z-10 flex flex-wrap items-center gap-1 border-b border-line bg-panel px-3 py-1.5 text-sm">
      <span role="status" className="me-auto">
        {sessions.length} selected
      </span>
      {inList.length > 0 && (
        <Button icon="archive" onClick={() => onArchive(inList, true)}>
          Archive
        </Button>
      )}
      {archived.length > 0 && (
        <Button icon="archive" onClick={() => onArchive(archived, false)}>
          Unarchive
        </Button>
      )}
      <Button tone="quiet" onClick={onCancel}>
        Cancel
      </Button>
    </div>
  );
}
