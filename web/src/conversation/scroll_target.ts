/** Finds the timeline item to scroll to for a message. */

import type { TimelineItem } from '../state/timeline';

export function itemOf(items: readonly TimelineItem[], messageId: string): number {
  const own = items.findIndex((item) => {
    if (item.kind === 'rewound') return item.group.turns.some((turn) => turn.messages.includes(messageId));
    return item.message.id === messageId || item.message.metadata?.client_message_id === messageId;
  });
  if (own >= 0) return own;
  // On the current path but not shown: it is part of a summary.
  return items.findIndex((item) => item.kind === 'summary');
}

/** Whether older items were prepended: then the scroll position is kept relative to the end. */
export function grewAtStart(firstBefore: string | undefined, items: readonly { key: string }[]): boolean {
  if (firstBefore === undefined || items[0]?.key === firstBefore) return false;
  return items.some((item) => item.key === firstBefore);
}
