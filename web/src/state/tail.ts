/** Merges the newest messages into the loaded ones. */

import type { Message } from '../api/types';

/**
 * Merge `fetched`, the newest messages, or all of them if `whole`. Older loaded messages are kept if they still connect;
 * unchanged messages stay the same objects, so that they are not rendered again.
 */
export function joinTail(loaded: Message[], fetched: Message[], whole: boolean): { messages: Message[]; connected: boolean } {
  const known = new Map(loaded.map((message) => [message.id, message]));
  const tail = fetched.map((message) => {
    const old = known.get(message.id);
    return old && JSON.stringify(old) === JSON.stringify(message) ? old : message;
  });
  const first = tail[0];
  const at = whole || !first ? -1 : loaded.findIndex((message) => message.id === first.id);
  if (at <= 0) return { messages: tail, connected: false };
  return { messages: [...loaded.slice(0, at), ...tail], connected: true };
}
