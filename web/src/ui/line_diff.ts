/** A line diff of two texts, with the fewest changes. */

export interface DiffLine {
  kind: 'same' | 'removed' | 'added';
  text: string;
}

/** Limit of the search; beyond it the texts have little in common and are shown whole. */
const MAX_STEPS = 2000;

export function lineDiff(left: string, right: string, maxSteps = MAX_STEPS): DiffLine[] {
  const a = left === '' ? [] : left.split('\n');
  const b = right === '' ? [] : right.split('\n');
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const same = (lines: string[]): DiffLine[] => lines.map((text) => ({ kind: 'same', text }));
  return [
    ...same(a.slice(0, head)),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail), maxSteps),
    ...same(a.slice(a.length - tail)),
  ];
}

/** Myers' greedy algorithm; `trace` records how far each diagonal was reached at each step. */
function middle(a: string[], b: string[], maxSteps: number): DiffLine[] {
  const limit = Math.min(a.length + b.length, maxSteps);
  let reached = new Map<number, number>([[1, 0]]);
  const trace: Map<number, number>[] = [];
  for (let steps = 0; steps <= limit; steps += 1) {
    trace.push(new Map(reached));
    for (let k = -steps; k <= steps; k += 2) {
      const down = k === -steps || (k !== steps && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1));
      let x = down ? (reached.get(k + 1) ?? 0) : (reached.get(k - 1) ?? 0) + 1;
      let y = x - k;
      while (x < a.length && y < b.length && a[x] === b[y]) {
        x += 1;
        y += 1;
      }
      reached.set(k, x);
      if (x >= a.length && y >= b.length) return walkBack(a, b, trace, steps);
    }
    reached = new Map(reached);
  }
  return [
    ...a.map((text): DiffLine => ({ kind: 'removed', text })),
    ...b.map((text): DiffLine => ({ kind: 'added', text })),
  ];
}

function walkBack(a: string[], b: string[], trace: Map<number, number>[], steps: number): DiffLine[] {
  const lines: DiffLine[] = [];
  let x = a.length;
  let y = b.length;
  for (let step = steps; step >= 0; step -= 1) {
    const reached = trace[step]!;
    const k = x - y;
    const down = k === -step || (k !== step && (reached.get(k - 1) ?? -1) < (reached.get(k + 1) ?? -1));
    const from = down ? k + 1 : k - 1;
    const fromX = step === 0 ? 0 : (reached.get(from) ?? 0);
    const fromY = step === 0 ? 0 : fromX - from;
    while (x > fromX && y > fromY && a[x - 1] === b[y - 1]) {
      lines.push({ kind: 'same', text: a[x - 1]! });
      x -= 1;
      y -= 1;
    }
    if (step === 0) break;
    if (down) lines.push({ kind: 'added', text: b[fromY]! });
    else lines.push({ kind: 'removed', text: a[fromX]! });
    x = fromX;
    y = fromY;
  }
  return lines.reverse();
}

/** Return the changes with a few lines of context, and gaps for the rest. */
export function withContext(lines: DiffLine[], around = 3): (DiffLine | { kind: 'gap'; count: number })[] {
  const near = lines.map((_, index) =>
    lines.slice(Math.max(0, index - around), index + around + 1).some((line) => line.kind !== 'same'),
  );
  const shown: (DiffLine | { kind: 'gap'; count: number })[] = [];
  let skipped = 0;
  lines.forEach((line, index) => {
    if (!near[index]) {
      skipped += 1;
      return;
    }
    if (skipped) shown.push({ kind: 'gap', count: skipped });
    skipped = 0;
    shown.push(line);
  });
  if (skipped && shown.length) shown.push({ kind: 'gap', count: skipped });
  return shown;
}
