/** The steps of an answer: each begins where the model was asked again. */

import type { Message, Part } from '../api/types';

export interface Step {
  /** From 1. */
  number: number;
  /** Where its first part stands among all of them: names a part for as long as the message grows. */
  first: number;
  parts: Part[];
}

export function stepsOf(parts: Message['parts']): Step[] {
  const steps: Step[] = [];
  let open: Step | null = null;
  parts.forEach((part, index) => {
    if (part.type === 'step-start') {
      open = null;
      return;
    }
    if (open === null) {
      open = { number: steps.length + 1, first: index, parts: [] };
      steps.push(open);
    }
    open.parts.push(part);
  });
  return steps;
}

/** Whether anything of it can be seen yet. */
export function saysNothing(message: Pick<Message, 'parts'>): boolean {
  return message.parts.every((part) => {
    if (part.type === 'text' || part.type === 'reasoning') return part.text.trim() === '';
    return part.type === 'step-start' || part.type.startsWith('data-');
  });
}
