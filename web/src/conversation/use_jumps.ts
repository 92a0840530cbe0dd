/** Alt with an arrow key jumps to the user's previous or next message. */

import { type RefObject, useEffect } from 'react';
import type { VirtualizerHandle } from 'virtua';
import type { Conversation } from '../state/conversation';
import type { TimelineItem } from '../state/timeline';

/** Distance below the top edge within which a message counts as the current one, in pixels. */
const EDGE_PX = 40;

export function useJumps(conversation: Conversation, items: readonly TimelineItem[], list: RefObject<VirtualizerHandle | null>, scroller: RefObject<HTMLElement | null>): void {
  useEffect(() => {
    const onKey = async (event: KeyboardEvent) => {
      const up = event.key === 'ArrowUp';
      if (event.defaultPrevented || !event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || !(up || event.key === 'ArrowDown')) return;
      // Only in the main conversation, and not in a text field, where the keys move the caret on some systems.
      const at = document.activeElement;
      const writing = (at instanceof HTMLTextAreaElement || at instanceof HTMLInputElement) && at.value !== '';
      if (writing || !scroller.current?.closest('main') || document.querySelector('dialog[open]')) return;
      event.preventDefault();
      const isQuestion = (item: TimelineItem) => item.kind === 'message' && item.message.role === 'user' && !item.message.metadata?.synthetic;
      const questions = items.flatMap((item, index) => (isQuestion(item) ? [index] : []));
      const handle = list.current;
      const here = handle ? handle.findItemIndex(handle.scrollOffset + EDGE_PX) : 0;
      const ended = scroller.current.scrollTop + scroller.current.clientHeight >= scroller.current.scrollHeight - 2;
      const focused = items.findIndex((item) => item.key === at?.closest<HTMLElement>('[data-row]')?.dataset.row);
      const from = focused >= 0 ? focused : ended && up ? items.length : here;
      const target = up ? questions.findLast((index) => index < from) : questions.find((index) => index > from);
      const item = target === undefined ? undefined : items[target];
      if (item?.kind === 'message') await conversation.older.reveal(item.message.id);
      else if (up && conversation.store.get().older) await conversation.older.load();
    };
    const listener = (event: KeyboardEvent) => void onKey(event);
    window.addEventListener('keydown', listener);
    return () => window.removeEventListener('keydown', listener);
  }, [conversation, items, list, scroller]);
}
