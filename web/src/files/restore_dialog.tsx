/** Asks what goes back: the conversation, the files, or both; with a preview of the files. */

import { useId, useState } from 'react';
import type { FileEffect } from '@clew/client';
import { Button } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { count } from '../ui/format';
import type { FilesMode, Move, RestoreQuestion } from './choose_files';
import { LineCounts } from './line_counts';

const WORDS: Record<Move['kind'], { title: string; act: string; point: string }> = {
  rewind: { title: 'Rewind', act: 'Rewind', point: 'since this message' },
  edit: { title: 'Edit and resend', act: 'Send', point: 'since this message' },
  unrewind: { title: 'Undo the rewind', act: 'Restore', point: 'compared with before the rewind' },
  goto: { title: 'Go to this turn', act: 'Go to this turn', point: 'compared with the end of that turn' },
};

const MODES: { mode: FilesMode; name: string; about: string }[] = [
  { mode: 'keep', name: 'Conversation only', about: 'The files stay as they are now.' },
  { mode: 'restore', name: 'Conversation and files', about: 'The files below go back, too.' },
  { mode: 'only', name: 'Files only', about: 'The conversation stays as it is.' },
];

const EFFECTS: Record<FileEffect['kind'], string> = { added: 'comes back', deleted: 'is deleted', modified: '', mode: 'permissions' };

/** Files listed at first. */
const MAX_LISTED = 200;

export function RestoreDialog({ question: { kind, preview, answer } }: { question: RestoreQuestion }) {
  const name = useId();
  const [mode, setMode] = useState<FilesMode>('keep');
  const [overwritten, setOverwritten] = useState<ReadonlySet<string>>(new Set());
  const { title, act, point } = WORDS[kind];
  const { files, skipped = {}, unsure = [] } = preview;
  const conflicts = files.filter((file) => file.conflict);
  const uncovered = Object.entries(skipped);
  const toggle = (path: string) => {
    const next = new Set(overwritten);
    if (!next.delete(path)) next.add(path);
    setOverwritten(next);
  };
  return (
    <Dialog title={title} onClose={() => answer(null)}>
      <form
        className="grid gap-4"
        onSubmit={(event) => {
          event.preventDefault();
          answer({ files: mode, paths: mode === 'keep' ? [] : [...overwritten] });
        }}
      >
        <fieldset className="grid gap-1.5">
          <legend className="mb-2 text-sm text-quiet">
            {count(files.length, 'file has', 'files have')} changed {point}.
          </legend>
          {MODES.filter((one) => kind !== 'edit' || one.mode !== 'only').map((one) => (
            <label key={one.mode} className={`flex cursor-pointer items-start gap-2.5 rounded-lg border px-3 py-2 ${mode === one.mode ? 'border-thread bg-thread-soft' : 'border-line hover:bg-panel'}`}>
              <input type="radio" name={name} autoFocus={one.mode === 'keep'} checked={mode === one.mode} onChange={() => setMode(one.mode)} className="mt-1 accent-(--thread)" />
              <span className="grid">
                <span className="text-sm font-medium">{one.name}</span>
                <span className={`text-xs ${mode === one.mode ? 'text-ink' : 'text-quiet'}`}>{one.about}</span>
              </span>
            </label>
          ))}
        </fieldset>
        <section aria-label="Files" className={`grid gap-2 ${mode === 'keep' ? 'text-quiet' : ''}`}>
          <ul className="max-h-64 divide-y divide-line overflow-auto rounded-lg border border-line" tabIndex={0} aria-label="Files that differ">
            {files.slice(0, MAX_LISTED).map((file) => (
              <li key={file.path} className="grid gap-0.5 px-3 py-1.5">
                <span className="flex items-baseline gap-2">
                  <span dir="ltr" className="min-w-0 flex-1 font-mono text-xs [overflow-wrap:anywhere]">
                    {file.path}
                  </span>
                  {EFFECTS[file.kind] && <span className="text-xs text-quiet">{EFFECTS[file.kind]}</span>}
                  <LineCounts added={file.added} removed={file.removed} />
                </span>
                {file.conflict && (
                  <span className="flex flex-wrap items-center justify-between gap-x-3 text-xs text-warn">
                    Changed by someone else, left alone
                    <label className="inline-flex items-center gap-1.5 text-ink">
                      <input type="checkbox" aria-label={`Overwrite ${file.path}`} disabled={mode === 'keep'} checked={overwritten.has(file.path)} onChange={() => toggle(file.path)} className="accent-(--thread)" />
                      Overwrite
                    </label>
                  </span>
                )}
              </li>
            ))}
            {files.length > MAX_LISTED && <li className="px-3 py-1.5 text-xs text-quiet">and {count(files.length - MAX_LISTED, 'more file')}</li>}
          </ul>
          {unsure.length > 0 && (
            <p className="text-xs text-warn [overflow-wrap:anywhere]">The snapshot was taken while a command was running. It may already contain later changes of {unsure.join(', ')}.</p>
          )}
          {uncovered.length > 0 && (
            <details className="text-xs text-quiet">
              <summary className="cursor-pointer rounded">{count(uncovered.length, 'path is', 'paths are')} not saved in snapshots and will not change</summary>
              <ul className="mt-1 max-h-32 overflow-auto pl-4">
                {uncovered.slice(0, MAX_LISTED).map(([path, why]) => (
                  <li key={path} className="[overflow-wrap:anywhere]">
                    <span className="font-mono">{path}</span> {why}
                  </li>
                ))}
              </ul>
            </details>
          )}
        </section>
        {mode !== 'keep' && (
          <p className="text-xs text-quiet">
            {conflicts.length === files.length && overwritten.size === 0 ? 'Nothing would be restored: tick Overwrite to replace a file.' : 'The present files are saved first; you can undo this.'}
          </p>
        )}
        <div className="flex flex-wrap justify-end gap-2">
          <Button onClick={() => answer(null)}>Cancel</Button>
          <Button type="submit" tone="thread">
            {mode === 'only' ? 'Restore files' : mode === 'keep' ? act : `${act} and restore files`}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
