/** A difference as it is read: what went in red, what came in green, and a line for all that stayed. */

import type { withContext } from './line_diff';
import { count } from './words';

const MARKS = { same: ' ', removed: '−', added: '+' } as const;
const LOOKS = { same: 'text-quiet', removed: 'bg-bad-soft text-bad', added: 'bg-good-soft text-good' } as const;

export function DiffLines({ lines, label }: { lines: ReturnType<typeof withContext>; label?: string }) {
  return (
    <pre
      tabIndex={0}
      role="group"
      aria-label={label}
      className="max-h-[70vh] overflow-auto rounded-md border border-line bg-paper font-mono text-xs whitespace-pre-wrap [overflow-wrap:anywhere]"
    >
      {lines.map((line, index) =>
        line.kind === 'gap' ? (
          <div key={index} className="border-y border-line px-2 py-0.5 text-quiet">
            {count(line.count, 'line')} the same
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
