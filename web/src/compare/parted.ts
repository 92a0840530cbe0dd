/** Two lines of messages, put beside each other: how far they say the same, and what each says from there on. */

import { type Message, textOf } from '../api/types';

export interface Parted {
  /** How many messages both begin with. */
  alike: number;
  /** Turn beside turn from where they part: what is said, and all that came of it. */
  rows: [Message[], Message[]][];
}

export function part(left: readonly Message[], right: readonly Message[]): Parted {
  let alike = 0;
  while (alike < left.length && alike < right.length && sayOf(left[alike]!) === sayOf(right[alike]!)) alike += 1;
  // They part with a turn: what was said the same and answered otherwise stands beside both answers.
  while (alike > 0 && left[alike] !== right[alike] && left[alike]?.role === 'assistant') alike -= 1;
  const [one, other] = [turnsOf(left.slice(alike)), turnsOf(right.slice(alike))];
  const rows = Array.from({ length: Math.max(one.length, other.length) }, (_, index): [Message[], Message[]] => [one[index] ?? [], other[index] ?? []]);
  return { alike, rows };
}

function turnsOf(messages: readonly Message[]): Message[][] {
  const turns: Message[][] = [];
  for (const message of messages) {
    if (message.role === 'user' || turns.length === 0) turns.push([message]);
    else turns.at(-1)!.push(message);
  }
  return turns;
}

/** A copy has ids of its own, so that it is the same is known by what it says. */
function sayOf(message: Message): string {
  const calls = message.parts.flatMap((part) => ('toolCallId' in part ? [[part.type, part.state, 'input' in part ? part.input : null]] : []));
  return JSON.stringify([message.role, textOf(message), calls]);
}
