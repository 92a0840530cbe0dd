/** The differences of one file: hunks with line numbers, of which each can be reverted. */

import { useMemo, useState } from 'react';
import { Button } from '../ui/button';
import { count } from '../ui/format';
import { type Hunk, type HunkLine, parseHunks } from './diff_hunks';

/** Lines shown at first. */
const MAX_LINES = 1000;

const ROWS: Record<HunkLine['kind'], string> = { same: '', removed: 'bg-bad-soft', added: 'bg-good-soft', note: 'text-quiet italic' };
const SIGNS: Record<HunkLine['kind'], string> = { same: ' ', removed: '−', added: '+', note: '' };
const COLORS: Record<HunkLine['kind'], string> = { same: 'text-ink', removed: 'text-bad', added: 'text-good', note: 'text-quiet' };

export function FileDiffView({ path, diff, onRevert }: { path: string; diff: string; onRevert?: (hunk: string) => void }) {
  const hunks = useMemo(() => parseHunks(diff), [diff]);
  const [whole, setWhole] = useState(false);
  const total = hunks.reduce((sum, hunk) => sum + hunk.lines.length, 0);
  if (hunks.length === 0) return <p className="px-4 py-2 text-xs text-quiet">{diff === '' ? 'No text changed.' : 'Not a text file; no lines to show.'}</p>;
  return (
    <div role="group" aria-label={`Changes of ${path}`} tabIndex={0} dir="ltr" className="overflow-x-auto bg-paper font-mono text-xs outline-offset-[-2px]">
      {shownHunks(hunks, whole ? Infinity : MAX_LINES).map((hunk) => (
        <section key={hunk.header} aria-label={`Lines ${hunk.header}`}>
          <header className="flex items-center justify-between gap-2 border-y border-line bg-panel py-0.5 pr-2 pl-4 text-quiet">
            <span>{hunk.header}</span>
            {onRevert && (
              <Button tone="quiet" className="px-1.5 py-0 font-sans text-xs underline" aria-label={`Revert the lines ${hunk.header}`} onClick={() => onRevert(hunk.header)}>
                Revert
              </Button>
            )}
          </header>
          {hunk.lines.map((line, index) => (
            <Line key={index} line={line} />
          ))}
        </section>
      ))}
      {!whole && total > MAX_LINES && (
        <Button tone="quiet" className="px-4 font-sans text-xs underline" onClick={() => setWhole(true)}>
          Show {count(total - MAX_LINES, 'more line')}
        </Button>
      )}
    </div>
  );
}

function Line({ line: { kind, pieces, before, after } }: { line: HunkLine }) {
  return (
    <div className={`grid grid-cols-[2.25rem_2.25rem_1rem_minmax(0,1fr)] ${ROWS[kind]}`}>
      <span className="pr-1.5 text-right text-quiet tabular-nums select-none">{before}</span>
      <span className="pr-1.5 text-right text-quiet tabular-nums select-none">{after}</span>
      <span className={`text-center ${COLORS[kind]}`}>{SIGNS[kind]}</span>
      <span className={`pr-2 whitespace-pre-wrap [overflow-wrap:anywhere] ${COLORS[kind]}`}>
        {pieces.map((piece, index) => (piece.changed ? <span key={index} className="rounded-xs underline decoration-2 underline-offset-2">{piece.text}</span> : piece.text))}
      </span>
    </div>
  );
}

function shownHunks(hunks: readonly Hunk[], max: number): Hunk[] {
  let left = max;
  return hunks.flatMap((hunk) => {
    const lines = hunk.lines.slice(0, Math.max(0, left));
    left -= hunk.lines.length;
    return lines.length > 0 ? [{ ...hunk, lines }] : [];
  });
}
