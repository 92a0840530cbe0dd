/** The files that differ between a session and its branch, as last saved. */

import { useState } from 'react';
import type { ChangedFile } from '@clew/client';
import { useQuery } from '../state/use_answer';
import { Button } from '../ui/button';
import { count } from '../ui/format';
import { Icon } from '../ui/icon';
import { ChangesSkeleton } from './changes_skeleton';
import { FileDiffView } from './file_diff';
import { LineCounts } from './line_counts';

export function ComparedFiles({ left, right }: { left: string; right: string }) {
  const [tries, setTries] = useState(0);
  const { answer, error } = useQuery('GET /api/sessions/{id}/changes/compare', { path: { id: left }, query: { other_id: right } }, tries);
  return (
    <section aria-label="Files" className="rounded-lg border border-line">
      <h3 className="border-b border-line px-3 py-1 text-xs font-medium text-quiet">{answer ? (answer.files.length > 0 ? `${count(answer.files.length, 'file differs', 'files differ')}` : 'The files are identical') : 'Files'}</h3>
      {error && (
        <p role="alert" className="flex flex-wrap items-center gap-2 px-3 py-2 text-sm text-bad">
          Could not compare the files: {error}.
          <Button onClick={() => setTries(tries + 1)}>Retry</Button>
        </p>
      )}
      {!error && !answer && <ChangesSkeleton />}
      {answer && answer.files.length > 0 && (
        <ul className="max-h-[40vh] divide-y divide-line overflow-auto">
          {answer.files.map((file) => (
            <ComparedFile key={file.path} left={left} right={right} file={file} />
          ))}
        </ul>
      )}
    </section>
  );
}

function ComparedFile({ left, right, file }: { left: string; right: string; file: ChangedFile }) {
  const [open, setOpen] = useState(false);
  const { answer, error } = useQuery('GET /api/sessions/{id}/changes/compare', open ? { path: { id: left }, query: { other_id: right, path: file.path } } : null);
  return (
    <li>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex w-full items-center gap-2 px-2 py-1 text-left outline-offset-[-2px] hover:bg-panel">
        <Icon name="chevron" className={`size-3.5 text-quiet transition-transform ${open ? 'rotate-90' : ''}`} />
        <span dir="ltr" className="min-w-0 flex-1 font-mono text-xs leading-5 [overflow-wrap:anywhere]">
          {file.path}
        </span>
        <LineCounts added={file.added} removed={file.removed} />
      </button>
      {error && <p className="px-3 py-1 text-xs text-bad">{error}</p>}
      {open && answer && <FileDiffView path={file.path} diff={answer.diff ?? ''} />}
    </li>
  );
}
