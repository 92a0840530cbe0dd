/** Splits two lists of messages into their common beginning and the rest, turn by turn. */

import { type Message, textOf } from '../api/types';

export interface SplitDiff {
  /** Number of messages that both begin with. */
  common: number;
  /** Pairs of turns after the common beginning. */
  rows: [Message[], Message[]][];
}

export function splitDiff(left: readonly Message[], right: readonly Message[]): SplitDiff {
  let common = 0;
  while (common < left.length && common < right.length && fingerprint(left[common]!) === fingerprint(right[common]!)) common += 1;
  // Split at a turn, so that a shared question is shown next to both answers.
  while (common > 0 && left[common] !== right[common] && left[common]?.role === 'assistant') common -= 1;
  const [one, other] = [turnsOf(left.slice(common)), turnsOf(right.slice(common))];
  const rows = Array.from({ length: Math.max(one.length, other.length) }, (_, index): [Message[], Message[]] => [one[index] ?? [], other[index] ?? []]);
  return { common, rows };
}

function turnsOf(messages: readonly Message[]): Message[][] {
  const turns: Message[][] = [];
  for (const message of messages) {
    if (message.role === 'user' || turns.length === 0) turns.push([message]);
    else turns.at(-1)!.push(message);
  }
  return turns;
}

/** Identify a message by its content: copies have other ids. */
function fingerprint(message: Message): string {
  const calls = message.parts.flatMap((part) => ('toolCallId' in part ? [[part.type, part.state, 'input' in part ? part.input : null]] : []));
  return JSON.stringify([message.role, textOf(message), calls]);
}
