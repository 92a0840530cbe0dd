/** The tail: how what the server says now is joined to what was loaded before. */

import type { Message } from '../api/types';

/**
 * `fetched` is the newest part of the view, `whole` when it is all of it. What lies before it stays, when it still
 * joins; unchanged messages stay the same objects, so that they are not drawn again.
 */
export function joinTail(loaded: Message[], fetched: Message[], whole: boolean): { messages: Message[]; kept: boolean } {
  const known = new Map(loaded.map((message) => [message.id, message]));
  const tail = fetched.map((message) => {
    const old = known.get(message.id);
    return old && JSON.stringify(old) === JSON.stringify(message) ? old : message;
  });
  const first = tail[0];
  const at = whole || !first ? -1 : loaded.findIndex((message) => message.id === first.id);
  if (at <= 0) return { messages: tail, kept: false };
  return { messages: [...loaded.slice(0, at), ...tail], kept: true };
}
