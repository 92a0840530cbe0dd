/** The messages of a conversation, in a virtualized list. */

import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from 'react';
import { Virtualizer, type VirtualizerHandle } from 'virtua';
import { isLive } from '../state/open_session';
import { rewoundGroups } from '../state/rewound';
import { useStore } from '../state/store';
import { timeline } from '../state/timeline';
import { isOver } from '../state/tree_pages';
import { useMessages, useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { Announcer } from './announcer';
import { Empty } from './empty';
import { ThreadFooter } from './footer';
import { grewAtStart, itemOf } from './scroll_target';
import { Loading } from './loading';
import { ThreadState, ThreadStateContext } from './thread_state';
import { Notice } from './notice';
import { Row } from './row';
import { useStickToBottom } from './use_stick_to_bottom';
import { useJumps } from './use_jumps';

/** Earlier messages are loaded when fewer than this many screens are left above. */
const PREFETCH_SCREENS = 3;
/** Rows at the end that are always mounted. */
const MOUNTED_AT_END = 12;

export function Thread() {
  const conversation = useThis();
  const { messages, streaming } = useMessages(conversation);
  const tree = useStore(conversation.store, (state) => state.tree);
  const older = useStore(conversation.store, (state) => state.older);
  const loaded = useStore(conversation.store, (state) => state.loaded);
  const loadingOlder = useStore(conversation.store, (state) => state.loadingOlder);
  const live = useStore(conversation.store, (state) => isLive(state.status));
  const focus = useStore(conversation.store, (state) => state.focus);
  const groups = useMemo(() => rewoundGroups(tree), [tree]);
  const items = useMemo(() => timeline(messages, groups, !older), [messages, groups, older]);
  const [thread] = useState(() => new ThreadState());
  const editing = useStore(thread.store, (state) => state.editing);
  const [focusedKey, setFocusedKey] = useState<string | null>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const list = useRef<VirtualizerHandle>(null);
  const { away, toEnd, leave } = useStickToBottom(scroller, content, thread);
  useJumps(conversation, items, list, scroller);
  const busy = streaming || live;
  const last = messages.at(-1);
  // The start of a turn from another client is announced before its messages arrive; until then the newest message is not live.
  const over = useStore(conversation.store, (state) => isOver(state.tree, last));
  const written = streaming || (live && !over);

  const firstBefore = useRef<string | undefined>(undefined);
  const shift = grewAtStart(firstBefore.current, items);
  useLayoutEffect(() => {
    firstBefore.current = items[0]?.key;
  }, [items]);

  const readAhead = useCallback(() => {
    const element = scroller.current;
    if (element && element.scrollTop < element.clientHeight * PREFETCH_SCREENS) void conversation.older.load();
  }, [conversation]);
  useEffect(() => {
    if (loaded && older && !loadingOlder) readAhead();
  }, [loaded, older, loadingOlder, items.length, readAhead]);

  // Home goes to the first message of the session, loading all pages, and waits until that message is rendered.
  const home = useRef(false);
  const rendered = useRef<string | undefined>(undefined);
  const atHome = useCallback(() => {
    if (!home.current || conversation.store.get().older || rendered.current !== conversation.messages[0]?.id) return;
    home.current = false;
    requestAnimationFrame(() => list.current?.scrollToIndex(0, { align: 'start', offset: -16 }));
  }, [conversation]);
  useEffect(() => {
    rendered.current = messages[0]?.id;
    atHome();
  }, [messages, items, atHome]);
  const toStart = async () => {
    leave();
    home.current = true;
    await conversation.older.loadAll();
    atHome();
  };

  // After sending a message, scroll to the answer.
  const sentId = last?.role === 'user' && last.metadata?.turn_id === undefined ? last.id : null;
  useEffect(() => {
    if (sentId !== null) toEnd();
  }, [sentId, toEnd]);

  const scrolled = useRef(0);
  useEffect(() => {
    if (!focus || scrolled.current === focus.seq || !loaded) return;
    const index = itemOf(items, focus.messageId);
    const item = items[index];
    if (!item) {
      // Not loaded yet.
      if (older && !loadingOlder) void conversation.older.load();
      return;
    }
    scrolled.current = focus.seq;
    leave();
    thread.store.set({ scrollTarget: { ...focus, within: item.key } });
    list.current?.scrollToIndex(index, { align: 'start', offset: -24 });
  }, [conversation, focus, items, loaded, older, loadingOlder, leave, thread]);

  // Keep the row with the focus or an edit mounted while scrolling, and the newest rows, which would mount and unmount with
  // every streamed line.
  const mounted = useMemo(() => {
    const pinned = [editing, focusedKey].map((key) => items.findIndex((item) => item.key === key)).filter((index) => index >= 0);
    const newest = items.slice(-MOUNTED_AT_END).map((_, index) => Math.max(0, items.length - MOUNTED_AT_END) + index);
    return [...new Set([...pinned, ...newest])];
  }, [items, editing, focusedKey]);

  return (
    <ThreadStateContext value={thread}>
      <div className="relative min-h-0 flex-1">
        {loadingOlder && away && (
          <div className="pointer-events-none absolute inset-x-0 top-2 z-10 text-center">
            <span className="rounded-full bg-raised px-3 py-1 text-xs text-quiet shadow-sm">Loading earlier messages…</span>
          </div>
        )}
        <div
          ref={scroller}
          role="region"
          aria-label="Messages"
          tabIndex={0}
          onScroll={readAhead}
          onKeyDown={(event) => {
            const typing = (event.target as HTMLElement).matches('input, textarea, select, pre');
            if (typing || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
            if (event.key === 'Home') void toStart();
            else if (event.key === 'End') toEnd();
            else return;
            event.preventDefault();
          }}
          onFocus={(event) => setFocusedKey(event.target.closest<HTMLElement>('[data-row]')?.dataset.row ?? null)}
          onBlur={(event) => !event.currentTarget.contains(event.relatedTarget) && setFocusedKey(null)}
          className="h-full overflow-x-hidden overflow-y-auto outline-offset-[-2px] [overflow-anchor:none]"
        >
          <div ref={content} className="pt-4">
            <Virtualizer ref={list} scrollRef={scroller} data={items} shift={shift} keepMounted={mounted} startMargin={16} bufferSize={600}>
              {(item) => <Row key={item.key} item={item} live={written && item.kind === 'message' && item.message === last} last={item.kind === 'message' && item.message === last} />}
            </Virtualizer>
            {loaded && items.length === 0 && !busy && <Empty />}
            {!loaded && items.length === 0 && <Loading />}
            <ThreadFooter last={last} busy={busy} />
          </div>
        </div>
        {away && (
          <div className="pointer-events-none absolute inset-x-0 bottom-3 z-1 flex justify-center">
            <Button
              icon="chevron"
              className="pointer-events-auto rounded-full! shadow-md [&_svg]:rotate-90"
              onClick={() => {
                // The button disappears; keep the scroll keys working.
                scroller.current?.focus({ preventScroll: true });
                toEnd();
              }}
            >
              Jump to the end
            </Button>
          </div>
        )}
        <Announcer busy={busy} />
      </div>
      <Notice />
    </ThreadStateContext>
  );
}
