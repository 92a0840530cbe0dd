/** Parses the unified diff of one file into hunks with line numbers and changed words. */

/** A piece of a line; `changed` is what differs from the line it replaces. */
export interface Piece {
  text: string;
  changed: boolean;
}

export interface HunkLine {
  kind: 'same' | 'removed' | 'added' | 'note';
  pieces: Piece[];
  /** Line numbers before and after. */
  before?: number;
  after?: number;
}

export interface Hunk {
  /** The header without what follows it; names the hunk to the server. */
  header: string;
  lines: HunkLine[];
}

const HEADER = /^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@/;

export function parseHunks(diff: string): Hunk[] {
  const hunks: Hunk[] = [];
  let [before, after] = [0, 0];
  const lines = diff.split('\n');
  if (lines.at(-1) === '') lines.pop();
  for (const line of lines) {
    const header = HEADER.exec(line);
    const hunk = hunks.at(-1);
    if (header) {
      [before, after] = [Number(header[1]), Number(header[2])];
      hunks.push({ header: header[0], lines: [] });
    } else if (hunk) {
      const pieces = [{ text: line.slice(1), changed: false }];
      if (line.startsWith('+')) hunk.lines.push({ kind: 'added', pieces, after: after++ });
      else if (line.startsWith('-')) hunk.lines.push({ kind: 'removed', pieces, before: before++ });
      else if (line.startsWith('\\')) hunk.lines.push({ kind: 'note', pieces: [{ text: line.slice(2), changed: false }] });
      else hunk.lines.push({ kind: 'same', pieces, before: before++, after: after++ });
    }
  }
  for (const hunk of hunks) markWords(hunk.lines);
  return hunks;
}

/** Mark the words that differ where as many lines were added as removed. */
function markWords(lines: HunkLine[]): void {
  for (let at = 0; at < lines.length; ) {
    const removed = runOf(lines, at, 'removed');
    const added = runOf(lines, at + removed.length, 'added');
    if (removed.length > 0 && removed.length === added.length) {
      removed.forEach((line, index) => {
        const other = added[index]!;
        [line.pieces, other.pieces] = differingWords(line.pieces[0]!.text, other.pieces[0]!.text);
      });
    }
    at += Math.max(1, removed.length + added.length);
  }
}

function runOf(lines: readonly HunkLine[], from: number, kind: HunkLine['kind']): HunkLine[] {
  const end = lines.findIndex((line, index) => index >= from && line.kind !== kind);
  return lines.slice(from, end < 0 ? undefined : end);
}

/** Split two lines at the words they begin and end with in common. */
function differingWords(one: string, other: string): [Piece[], Piece[]] {
  const [left, right] = [words(one), words(other)];
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head += 1;
  let tail = 0;
  while (tail < left.length - head && tail < right.length - head && left[left.length - 1 - tail] === right[right.length - 1 - tail]) tail += 1;
  // Lines without a common word are different as a whole.
  const isCommon = (all: string[]) => [...all.slice(0, head), ...all.slice(all.length - tail)].some((word) => word.trim() !== '');
  if (!isCommon(left)) return [[{ text: one, changed: false }], [{ text: other, changed: false }]];
  const pieces = (all: string[]): Piece[] =>
    [
      { text: all.slice(0, head).join(''), changed: false },
      { text: all.slice(head, all.length - tail).join(''), changed: true },
      { text: all.slice(all.length - tail).join(''), changed: false },
    ].filter((piece) => piece.text !== '');
  return [pieces(left), pieces(right)];
}

function words(text: string): string[] {
  return text.match(/[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu) ?? [];
}
