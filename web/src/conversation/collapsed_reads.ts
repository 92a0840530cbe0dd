/** The visible items of an answer: parts, step separators, and runs of successful read calls collapsed into one line. */

import type { Part } from '../api/types';
import { count } from '../ui/format';
import type { Step } from './steps';
import { asTool, toolName, toolState } from './tool_part';

export interface VisiblePart {
  /** Index among all parts. */
  at: number;
  part: Part;
}

export type VisibleItem = { kind: 'step'; number: number } | ({ kind: 'part' } & VisiblePart) | { kind: 'reads'; parts: VisiblePart[] };

/** Consecutive reads that are collapsed. */
const MIN_COLLAPSED = 3;
const LABELS: Record<string, (number: number) => string> = {
  read: (number) => `read ${count(number, 'file')}`,
  ls: (number) => `listed ${count(number, 'folder')}`,
  glob: (number) => `searched for files ${count(number, 'time')}`,
  grep: (number) => `searched text ${count(number, 'time')}`,
};

/** Group finished reads, also across steps that changed nothing and had no text. */
export function visibleItems(steps: Step[]): VisibleItem[] {
  const shown: VisibleItem[] = [];
  let run: (VisiblePart & { step: Step })[] = [];
  const marked = new Set<Step>();
  const mark = (step: Step) => {
    if (step.number > 1 && !marked.has(step)) shown.push({ kind: 'step', number: step.number });
    marked.add(step);
  };
  const flush = () => {
    const [first] = run;
    if (first && run.length >= MIN_COLLAPSED) {
      mark(first.step);
      run.forEach(({ step }) => marked.add(step));
      shown.push({ kind: 'reads', parts: run.map(({ at, part }) => ({ at, part })) });
    } else {
      for (const { at, part, step } of run) {
        mark(step);
        shown.push({ kind: 'part', at, part });
      }
    }
    run = [];
  };
  for (const step of steps) {
    step.parts.forEach((part, index) => {
      const at = step.first + index;
      if (isFinishedRead(part)) run.push({ at, part, step });
      else {
        flush();
        mark(step);
        shown.push({ kind: 'part', at, part });
      }
    });
  }
  flush();
  return shown;
}

/** Summarize the reads in order of first use: "Read 3 files, searched text 2 times". */
export function summarizeReads(parts: VisiblePart[]): string {
  const counted = new Map<string, number>();
  for (const { part } of parts) {
    const name = toolName(asTool(part)!);
    counted.set(name, (counted.get(name) ?? 0) + 1);
  }
  const text = [...counted].map(([name, number]) => LABELS[name]!(number)).join(', ');
  return text[0]!.toUpperCase() + text.slice(1);
}

function isFinishedRead(part: Part): boolean {
  const tool = asTool(part);
  return tool !== null && Object.hasOwn(LABELS, toolName(tool)) && toolState(tool, true, false) === 'done' && tool.approval === undefined;
}
