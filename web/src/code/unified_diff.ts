/** A difference as programs print it, read line by line. */

import type { DiffLine } from '../ui/line_diff';

export interface UnifiedDiff {
  lines: (DiffLine | { kind: 'mark'; text: string })[];
  added: number;
  removed: number;
}

/** The lines of a difference without a head: what a tool changed. A line that came or went may begin with anything. */
export function changeLines(diff: string): UnifiedDiff['lines'] {
  return diff === '' ? [] : diff.split('\n').map((line) => lineOf(line, /^@@ /));
}

/** Null where no line says that it came or went: then it is a text like any other. */
export function readDiff(text: string): UnifiedDiff | null {
  const lines = text.split('\n').map((line) => lineOf(line, /^(@@|diff |index |--- |\+\+\+ |new file|deleted file|rename |similarity )/));
  const counted = (kind: string) => lines.filter((line) => line.kind === kind).length;
  const [added, removed] = [counted('added'), counted('removed')];
  return added + removed ? { lines, added, removed } : null;
}

function lineOf(line: string, marks: RegExp): UnifiedDiff['lines'][number] {
  if (marks.test(line)) return { kind: 'mark', text: line };
  if (line.startsWith('+')) return { kind: 'added', text: line.slice(1) };
  if (line.startsWith('-')) return { kind: 'removed', text: line.slice(1) };
  return { kind: 'same', text: line.startsWith(' ') ? line.slice(1) : line };
}
