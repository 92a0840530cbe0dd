/** The timeline: messages and the banners between them, in order. */

import { keyOf, type Message } from '../api/types';
import type { RewoundGroup } from './rewound';

/** `divided`: separated from the previous turn by a line. */
export type TimelineItem =
  | { kind: 'message'; key: string; message: Message; startsTurn: boolean; endsTurn: boolean; divided: boolean }
  | { kind: 'summary'; key: string; message: Message }
  | { kind: 'rewound'; key: string; group: RewoundGroup };

export function isSummary(message: Message): boolean {
  return message.metadata?.summary === true || message.parts.some((part) => part.type === 'data-compaction');
}

/** Build the timeline. `whole`: the first message is the first of the session, so turns rewound before it are shown. */
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
    // Groups covered by a version switch have no banner.
    const above = items.findLast((item) => item.kind !== 'rewound' || !item.group.covered);
    items.push({ kind: 'message', key: keyOf(message), message, startsTurn, endsTurn, divided: startsTurn && message.role === 'user' && above?.kind === 'message' });
    if (turn && endsTurn) banners(turn);
  });
  return items;
}
