/** Imports sessions of other programs, or clew exports, from chosen files. */

import { useId, useState } from 'react';
import { useHost } from '../state/host';
import { formatRoute } from '../state/route';
import { Choice } from '../settings/rows';
import { Dialog } from '../ui/dialog';
import { count } from '../ui/format';
import { type ImportResult, importFile, groupFiles, FATE_LABELS, OUTCOMES, PROGRAMS, type Source } from './import_files';

export function ImportDialog({ onClose }: { onClose: () => void }) {
  const host = useHost();
  const field = useId();
  const [source, setSource] = useState<Source>('claude-code');
  const [results, setResults] = useState<ImportResult[]>([]);
  const [left, setLeft] = useState(0);
  const hint = PROGRAMS.find(([name]) => name === source)?.[2];
  const take = async (files: readonly File[]) => {
    const found = await groupFiles(source, files);
    setResults([]);
    setLeft(found.length);
    for (const { name, body } of found) {
      const arrival = await importFile(host.client, source, name, body);
      setResults((before) => [...before, arrival]);
      setLeft((before) => before - 1);
    }
  };
  return (
    <Dialog title="Import sessions" onClose={onClose} wide>
      <div className="grid min-w-0 grid-cols-1 gap-4">
        <Choice label="From" value={source} onChange={(name) => setSource(name as Source)} options={PROGRAMS.map(([name, label]) => [name, label] as const)} />
        <div className="grid min-w-0 grid-cols-1 gap-1">
          <label htmlFor={field} className="text-sm text-quiet">
            {hint}
          </label>
          <input
            id={field}
            type="file"
            multiple
            disabled={left > 0}
            className="min-w-0 max-w-full rounded-md border border-line bg-paper px-2 py-1.5 text-sm file:me-3 file:rounded file:border-0 file:bg-panel file:px-2 file:py-1 file:text-ink"
            onChange={(event) => {
              const files = [...(event.target.files ?? [])];
              event.target.value = '';
              if (files.length > 0) void take(files);
            }}
          />
        </div>
        <p className="text-xs text-quiet">Importing a session again adds only what is new. On the machine that has the files, <code>clew import --from {source === 'clew' ? 'PROGRAM' : source}</code> finds them all.</p>
        <p role="status" className="text-sm text-quiet">
          {left > 0 ? `${count(left, 'file')} left…` : results.length > 0 ? `${count(results.length, 'file')} processed` : ''}
        </p>
        {results.length > 0 && (
          <ul className="grid min-w-0 grid-cols-1 gap-2">
            {results.map((one, index) => (
              <li key={index} className="min-w-0 rounded-md border border-line px-3 py-2 text-sm">
                <ImportedLine one={one} onClose={onClose} />
              </li>
            ))}
          </ul>
        )}
      </div>
    </Dialog>
  );
}

function ImportedLine({ one: { name, report, problem }, onClose }: { one: ImportResult; onClose: () => void }) {
  if (!report) {
    return (
      <p role="alert" className="break-words text-bad">
        {name}: {problem}
      </p>
    );
  }
  const added = report.turns > 0 ? `, ${count(report.turns, 'turn')}` : '';
  const below = report.subagents > 0 ? `, ${count(report.subagents, 'subagent')}` : '';
  return (
    <>
      <a href={formatRoute({ session: report.session_id })} onClick={onClose} className="block truncate font-medium underline decoration-line hover:decoration-current">
        {report.title ?? 'Untitled'}
      </a>
      <p className="break-words text-quiet">
        {name}: {OUTCOMES[report.outcome]}
        {added}
        {below}
        {report.why && `. ${report.why}`}
      </p>
      {report.remarks.length > 0 && (
        <details className="mt-1 min-w-0 text-xs">
          <summary className="w-fit cursor-pointer rounded px-1 underline underline-offset-2">{count(report.remarks.length, 'note')}</summary>
          <ul className="mt-1 grid gap-0.5">
            {report.remarks.map((remark) => (
              <li key={`${remark.fate} ${remark.what}`} className="break-words">
                {remark.count} × {remark.what} <span className="text-quiet">({FATE_LABELS[remark.fate]}{remark.where && `; ${remark.where}`})</span>
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}
