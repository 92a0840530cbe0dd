/** Parses unified diffs. */

import type { DiffLine } from '../ui/line_diff';

export interface UnifiedDiff {
  lines: (DiffLine | { kind: 'mark'; text: string })[];
  added: number;
  removed: number;
}

/** Parse a diff without a file header, as tools return it. Changed lines may begin with anything. */
export function changeLines(diff: string): UnifiedDiff['lines'] {
  return diff === '' ? [] : diff.split('\n').map((line) => lineOf(line, /^@@ /));
}

/** Parse a diff; return null if no line is added or removed. */
export function readDiff(text: string): UnifiedDiff | null {
  const lines = text.split('\n').map((line) => lineOf(line, /^(@@|diff |index |--- |\+\+\+ |new file|deleted file|rename |similarity )/));
  const countOf = (kind: string) => lines.filter((line) => line.kind === kind).length;
  const [added, removed] = [countOf('added'), countOf('removed')];
  return added + removed ? { lines, added, removed } : null;
}

function lineOf(line: string, marks: RegExp): UnifiedDiff['lines'][number] {
  if (marks.test(line)) return { kind: 'mark', text: line };
  if (line.startsWith('+')) return { kind: 'added', text: line.slice(1) };
  if (line.startsWith('-')) return { kind: 'removed', text: line.slice(1) };
  return { kind: 'same', text: line.startsWith(' ') ? line.slice(1) : line };
}
