/** What an answer shows, one thing after the other: parts, marks between steps, and looks that went well as one line. */

import type { Part } from '../api/types';
import { count } from '../ui/words';
import type { Step } from './steps';
import { asTool, toolName, toolState } from './tool_part';

export interface ShownPart {
  /** Where it stands among all of them. */
  at: number;
  part: Part;
}

export type Shown = { kind: 'step'; number: number } | ({ kind: 'part' } & ShownPart) | { kind: 'looks'; parts: ShownPart[] };

/** So many in a row are told in one line. */
const MANY = 3;
const WORDS: Record<string, (number: number) => string> = {
  read: (number) => `read ${count(number, 'file')}`,
  ls: (number) => `listed ${count(number, 'folder')}`,
  glob: (number) => `looked for files ${count(number, 'time')}`,
  grep: (number) => `searched ${count(number, 'time')}`,
};

/** Looks that are done belong together, also where the model was asked in between: it changed nothing and said nothing. */
export function shownOf(steps: Step[]): Shown[] {
  const shown: Shown[] = [];
  let run: (ShownPart & { step: Step })[] = [];
  const begun = new Set<Step>();
  const mark = (step: Step) => {
    if (step.number > 1 && !begun.has(step)) shown.push({ kind: 'step', number: step.number });
    begun.add(step);
  };
  const flush = () => {
    const [first] = run;
    if (first && run.length >= MANY) {
      mark(first.step);
      run.forEach(({ step }) => begun.add(step));
      shown.push({ kind: 'looks', parts: run.map(({ at, part }) => ({ at, part })) });
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
      if (isLook(part)) run.push({ at, part, step });
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

/** "Read 3 files, searched 2 times", in the order in which they first came. */
export function looksInWords(parts: ShownPart[]): string {
  const counted = new Map<string, number>();
  for (const { part } of parts) {
    const name = toolName(asTool(part)!);
    counted.set(name, (counted.get(name) ?? 0) + 1);
  }
  const words = [...counted].map(([name, number]) => WORDS[name]!(number)).join(', ');
  return words[0]!.toUpperCase() + words.slice(1);
}

function isLook(part: Part): boolean {
  const tool = asTool(part);
  return tool !== null && Object.hasOwn(WORDS, toolName(tool)) && toolState(tool, true, false) === 'done' && tool.approval === undefined;
}
