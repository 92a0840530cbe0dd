/** Landing: which item of the timeline has to be on the screen for a message to be seen. */

import type { TimelineItem } from '../state/timeline';

export function itemOf(items: readonly TimelineItem[], messageId: string): number {
  const own = items.findIndex((item) => {
    if (item.kind === 'rewound') return item.group.turns.some((turn) => turn.messages.includes(messageId));
    return item.message.id === messageId || item.message.metadata?.client_message_id === messageId;
  });
  if (own >= 0) return own;
  // On the line and not shown: a summary stands for it.
  return items.findIndex((item) => item.kind === 'summary');
}

/** Whether items were put before the ones that were there: then the reader's place is kept from the end. */
export function grewAtStart(firstBefore: string | undefined, items: readonly { key: string }[]): boolean {
  if (firstBefore === undefined || items[0]?.key === firstBefore) return false;
  return items.some((item) => item.key === firstBefore);
}
