/** A diff with removed lines in red, added ones in green, and unchanged ones collapsed. */

import type { DiffLine } from './line_diff';
import { count } from './format';

/** A line of the diff, a gap for unchanged lines, or a marker such as a hunk header. */
export type ShownLine = DiffLine | { kind: 'gap'; count: number } | { kind: 'mark'; text: string };

const MARKS = { same: ' ', removed: '−', added: '+' } as const;
const CLASSES = { same: 'text-quiet', removed: 'bg-bad-soft text-bad', added: 'bg-good-soft text-good' } as const;

function isBetween(line: ShownLine | undefined): line is Exclude<ShownLine, DiffLine> {
  return line?.kind === 'gap' || line?.kind === 'mark';
}

/** `framed`: the parent draws the frame. */
export function DiffLines({ lines, label, framed = false }: { lines: ShownLine[]; label?: string; framed?: boolean }) {
  return (
    <pre
      tabIndex={0}
      role="group"
      aria-label={label}
      className={`max-h-[70vh] overflow-auto bg-paper font-mono text-xs whitespace-pre-wrap [overflow-wrap:anywhere] ${framed ? '' : 'rounded-md border border-line'}`}
    >
      {lines.map((line, index) =>
        isBetween(line) ? (
          <div key={index} className={`border-line px-2 py-0.5 text-quiet not-last:border-b ${isBetween(lines[index - 1]) ? '' : 'not-first:border-t'}`}>
            {line.kind === 'mark' ? line.text : `${count(line.count, 'unchanged line')}`}
          </div>
        ) : (
          <div key={index} dir="auto" className={`px-2 ${CLASSES[line.kind]}`}>
            {MARKS[line.kind]} {line.text}
          </div>
        ),
      )}
    </pre>
  );
}
