/** A difference as programs print it, read line by line. */

import type { DiffLine } from '../ui/line_diff';

export interface UnifiedDiff {
  lines: (DiffLine | { kind: 'mark'; text: string })[];
  added: number;
  removed: number;
}

/** Null where no line says that it came or went: then it is a text like any other. */
export function readDiff(text: string): UnifiedDiff | null {
  const lines = text.split('\n').map((line): UnifiedDiff['lines'][number] => {
    if (/^(@@|diff |index |--- |\+\+\+ |new file|deleted file|rename |similarity )/.test(line)) return { kind: 'mark', text: line };
    if (line.startsWith('+')) return { kind: 'added', text: line.slice(1) };
    if (line.startsWith('-')) return { kind: 'removed', text: line.slice(1) };
    return { kind: 'same', text: line.startsWith(' ') ? line.slice(1) : line };
  });
  const counted = (kind: string) => lines.filter((line) => line.kind === kind).length;
  const [added, removed] = [counted('added'), counted('removed')];
  return added + removed ? { lines, added, removed } : null;
}
