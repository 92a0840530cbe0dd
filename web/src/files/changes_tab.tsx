/** Changes of the session in its workspace, file by file; each file and hunk can be reverted. */

import { useEffect, useMemo, useRef, useState } from 'react';
import type { ChangedFile, ChangesReport } from '@clew/client';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useQuery } from '../state/use_answer';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { CopyButton } from '../conversation/copy_button';
import { count } from '../ui/format';
import { Icon } from '../ui/icon';
import { ChangesSkeleton } from './changes_skeleton';
import { FileDiffView } from './file_diff';
import { LineCounts } from './line_counts';
import { RevertDialog, type Reverting } from './revert_dialog';

/** Turns that can be chosen. */
const MAX_TURNS = 200;
/** Changed lines up to which a single file is shown at once. */
const MAX_OPEN_LINES = 200;

export function ChangesTab() {
  const conversation = useThis();
  const session = useStore(conversation.store, (state) => state.session);
  const tree = useStore(conversation.store, (state) => state.tree);
  const [turn, setTurn] = useState('');
  const [tries, setTries] = useState(0);
  const version = useVersion(tries);
  const query = turn ? { turn_id: turn } : {};
  const hasFolder = session !== null && session.workspace_root !== null;
  const { answer, error } = useQuery('GET /api/sessions/{id}/changes', hasFolder ? { path: { id: conversation.id }, query } : null, version);
  const [reverting, setReverting] = useState<Reverting | null>(null);

  if (session !== null && !hasFolder) return <p className="p-4 text-sm text-quiet">This session has no folder, so no changes are recorded.</p>;
  const turns = (tree?.turns ?? []).filter((one) => one.on_line && one.kind === 'normal').slice(-MAX_TURNS).reverse();
  return (
    <div className="grid">
      <div className="border-b border-line px-4 py-2">
        <select aria-label="Changes of" value={turn} onChange={(event) => setTurn(event.target.value)} className="w-full min-w-0 rounded-md border border-line bg-raised px-2 py-1 text-sm">
          <option value="">The whole session</option>
          {turns.map((one) => (
            <option key={one.id} value={one.id}>
              {one.text.slice(0, 60) || one.id}
            </option>
          ))}
        </select>
      </div>
      {error && (
        <div role="alert" className="grid justify-items-start gap-2 p-4 text-sm">
          <p className="font-medium">Could not load the changes</p>
          <p className="break-words text-quiet">{error}</p>
          <Button icon="retry" onClick={() => setTries(tries + 1)}>
            Retry
          </Button>
        </div>
      )}
      {!error && !answer && <ChangesSkeleton />}
      {answer && (
        <>
          {answer.failed && answer.files.length > 0 && <p className="border-b border-line bg-warn-soft px-4 py-2 text-xs break-words text-warn">Some changes may be missing: {answer.failed}</p>}
          {answer.files.length === 0 && (
            <p className="p-4 text-sm break-words text-quiet">{answer.failed ? `No changes are recorded: ${answer.failed}` : turn ? 'This turn changed no files.' : 'No changed files. What the agent changes in its folder, also by shell commands, appears here.'}</p>
          )}
          {answer.files.length > 0 && <Files key={turn} report={answer} turn={turn} onRevert={setReverting} />}
          <Uncovered paths={Object.entries(answer.skipped ?? {})} />
        </>
      )}
      {reverting && <RevertDialog reverting={reverting} onClose={() => setReverting(null)} />}
    </div>
  );
}

/** Return a value that changes when files may have: a turn or a tool call ended, or this page restored something. */
function useVersion(tries: number): string {
  const { store } = useThis();
  const restoring = useStore(store, (state) => state.restoring);
  const before = useRef('');
  const version = useStore(store, ({ tree, status, filesVersion, messages }) => {
    const calls = messages.at(-1)?.parts.filter((part) => 'state' in part && part.state === 'output-available').length ?? 0;
    return [tries, filesVersion, status.state, tree?.head_turn_id, tree?.turns.length, messages.at(-1)?.id, calls].join(' ');
  });
  useEffect(() => {
    if (!restoring) before.current = version;
  });
  return restoring ? before.current : version;
}

function Files({ report, turn, onRevert }: { report: ChangesReport; turn: string; onRevert: (reverting: Reverting) => void }) {
  const conversation = useThis();
  const { client } = useHost();
  const { files } = report;
  const sum = (kind: 'added' | 'removed') => files.reduce((total, file) => total + (file[kind] ?? 0), 0);
  const copyAll = async () => {
    const diffs = await Promise.all(files.map(({ path }) => client.call('GET /api/sessions/{id}/changes/diff', { path: { id: conversation.id }, query: { path, ...(turn && { turn_id: turn }) } })));
    await navigator.clipboard.writeText(diffs.map(({ diff }) => diff).join(''));
    conversation.notify(`Copied ${count(files.length, 'file')} as a patch.`);
  };
  return (
    <section aria-label="Changed files">
      <div className="flex items-center gap-2 border-b border-line py-1 pr-2 pl-4 text-sm">
        <span className="flex-1">{count(files.length, 'file')}</span>
        <LineCounts added={sum('added')} removed={sum('removed')} />
        <Button tone="quiet" icon="copy" className="px-1.5 text-xs" onClick={() => void copyAll().catch((error: unknown) => conversation.fail(error))}>
          Copy patch
        </Button>
      </div>
      <ul className="divide-y divide-line">
        {files.map((file) => (
          <File key={file.path} file={file} turn={turn} report={report} opened={files.length === 1 && (file.added ?? 0) + (file.removed ?? 0) <= MAX_OPEN_LINES} onRevert={onRevert} />
        ))}
      </ul>
    </section>
  );
}

const KINDS: Record<ChangedFile['kind'], { letter: string; name: string; color: string }> = {
  added: { letter: 'A', name: 'Added', color: 'text-good' },
  deleted: { letter: 'D', name: 'Deleted', color: 'text-bad' },
  modified: { letter: 'M', name: 'Modified', color: 'text-warn' },
  mode: { letter: 'M', name: 'Permissions changed', color: 'text-warn' },
};

function File({ file, turn, report, opened, onRevert }: { file: ChangedFile; turn: string; report: ChangesReport; opened: boolean; onRevert: (reverting: Reverting) => void }) {
  const conversation = useThis();
  const [open, setOpen] = useState(opened);
  const [tries, setTries] = useState(0);
  const query = { path: file.path, ...(turn && { turn_id: turn }) };
  // With each new report: before it arrives, the file may have no changes any more.
  const version = useMemo(() => ({ report, tries }), [report, tries]);
  const { answer, error } = useQuery('GET /api/sessions/{id}/changes/diff', open ? { path: { id: conversation.id }, query } : null, version);
  const { letter, name, color } = KINDS[file.kind];
  return (
    <li>
      <button type="button" aria-expanded={open} onClick={() => setOpen(!open)} className="flex w-full items-center gap-2 py-1.5 pr-3 pl-2 text-left outline-offset-[-2px] hover:bg-raised">
        <Icon name="chevron" className={`size-3.5 text-quiet transition-transform ${open ? 'rotate-90' : ''}`} />
        <span title={name} className={`font-mono text-xs leading-5 font-semibold ${color}`}>
          <span aria-hidden="true">{letter}</span>
          <span className="sr-only">{name}</span>
        </span>
        <span dir="ltr" className="min-w-0 flex-1 font-mono text-xs leading-5 [overflow-wrap:anywhere]">
          {file.path}
          {file.shared && (
            <span title="Another session or person changed this file, too" className="ml-2 rounded-full bg-warn-soft px-1.5 font-sans text-[11px] text-warn">
              shared
            </span>
          )}
        </span>
        <span className="leading-5">
          <LineCounts added={file.added} removed={file.removed} />
        </span>
      </button>
      {open && (
        <div>
          <div className="flex items-center justify-end gap-1 pr-2 pb-1">
            <CopyButton label={`Copy ${file.path} as a patch`} text={() => answer?.diff ?? ''} disabled={!answer} />
            <Button className="px-2 py-0.5 text-xs" icon="rewind" aria-label={`Revert file ${file.path}`} onClick={() => onRevert({ path: file.path, turn, kind: file.kind })}>
              Revert file
            </Button>
          </div>
          {error && (
            <p role="alert" className="flex flex-wrap items-center gap-2 px-4 text-xs text-bad">
              {error}
              <Button onClick={() => setTries(tries + 1)}>Retry</Button>
            </p>
          )}
          {!error && !answer && <ChangesSkeleton />}
          {answer && <FileDiffView path={file.path} diff={answer.diff} onRevert={(hunk) => onRevert({ path: file.path, turn, kind: file.kind, hunk })} />}
        </div>
      )}
    </li>
  );
}

function Uncovered({ paths }: { paths: [string, string][] }) {
  if (paths.length === 0) return null;
  return (
    <details className="border-t border-line px-4 py-2 text-xs text-quiet">
      <summary className="cursor-pointer rounded">{count(paths.length, 'path is', 'paths are')} not saved in snapshots</summary>
      <ul className="mt-1 grid gap-0.5">
        {paths.slice(0, 200).map(([path, why]) => (
          <li key={path} className="[overflow-wrap:anywhere]">
            <span className="font-mono">{path}</span> {why}
          </li>
        ))}
      </ul>
    </details>
  );
}
