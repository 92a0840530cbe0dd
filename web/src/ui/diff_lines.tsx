/** A difference as it is read: what went in red, what came in green, and a line for all that stayed. */

import type { DiffLine } from './line_diff';
import { count } from './words';

/** A line of it, the place of lines that stayed, or what a program says of the place. */
export type ShownLine = DiffLine | { kind: 'gap'; count: number } | { kind: 'mark'; text: string };

const MARKS = { same: ' ', removed: '−', added: '+' } as const;
const LOOKS = { same: 'text-quiet', removed: 'bg-bad-soft text-bad', added: 'bg-good-soft text-good' } as const;

function isBetween(line: ShownLine | undefined): line is Exclude<ShownLine, DiffLine> {
  return line?.kind === 'gap' || line?.kind === 'mark';
}

/** `framed`: it stands in a frame of somebody else's. */
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
            {line.kind === 'mark' ? line.text : `${count(line.count, 'line')} the same`}
          </div>
        ) : (
          <div key={index} dir="auto" className={`px-2 ${LOOKS[line.kind]}`}>
            {MARKS[line.kind]} {line.text}
          </div>
        ),
      )}
    </pre>
  );
}
