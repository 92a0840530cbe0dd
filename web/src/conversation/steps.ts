/** The steps of an answer, one per model call. */

import type { Message, Part } from '../api/types';

export interface Step {
  /** From 1. */
  number: number;
  /** Index of its first part in the message; stable while the message grows. */
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

/** Whether the message has no visible content yet. */
export function isEmptyMessage(message: Pick<Message, 'parts'>): boolean {
  return message.parts.every((part) => {
    if (part.type === 'text' || part.type === 'reasoning') return part.text.trim() === '';
    return part.type === 'step-start' || part.type.startsWith('data-');
  });
}
