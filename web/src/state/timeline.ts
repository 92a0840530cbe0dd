/** The timeline: messages and the banners between them, in the order they are read. */

import { keyOf, type Message } from '../api/types';
import type { RewoundGroup } from './rewound';

/** `parted`: a line stands between it and the turn before. */
export type TimelineItem =
  | { kind: 'message'; key: string; message: Message; startsTurn: boolean; endsTurn: boolean; parted: boolean }
  | { kind: 'summary'; key: string; message: Message }
  | { kind: 'rewound'; key: string; group: RewoundGroup };

export function isSummary(message: Message): boolean {
  return message.metadata?.summary === true || message.parts.some((part) => part.type === 'data-compaction');
}

/**
 * `whole` says that the first message is the first there is: only then is the time before it shown.
 */
export function timeline(messages: Message[], groups: RewoundGroup[], whole: boolean): TimelineItem[] {
  const leaving = new Map<string | null, RewoundGroup[]>();
  for (const group of groups) leaving.set(group.after, [...(leaving.get(group.after) ?? []), group]);
  const items: TimelineItem[] = [];
  const banners = (after: string | null) => {
    for (const group of leaving.get(after) ?? []) items.push({ kind: 'rewound', key: `rewound ${group.root}`, group });
    leaving.delete(after);
  };
  if (whole) banners(null);
  messages.forEach((message, index) => {
    const turn = message.metadata?.turn_id;
    if (isSummary(message)) {
      items.push({ kind: 'summary', key: message.id, message });
      if (turn) banners(turn);
      return;
    }
    const before = messages[index - 1]?.metadata?.turn_id;
    const after = messages[index + 1]?.metadata?.turn_id;
    const startsTurn = turn === undefined || before !== turn;
    const endsTurn = turn === undefined ? index === messages.length - 1 : after !== turn;
    // A banner that a switch of versions stands for is not drawn.
    const above = items.findLast((item) => item.kind !== 'rewound' || !item.group.covered);
    items.push({ kind: 'message', key: keyOf(message), message, startsTurn, endsTurn, parted: startsTurn && message.role === 'user' && above?.kind === 'message' });
    if (turn && endsTurn) banners(turn);
  });
  return items;
}
