/** All sessions, branches below their parents. Arrows move, Enter opens, Space selects, P pins, F2 renames, Delete asks. */

import { type KeyboardEvent, useEffect, useMemo, useRef, useState } from 'react';
import { forgetDraft } from '../composer/draft';
import type { Session } from '../api/types';
import { useHost } from '../state/host';
import { goTo, useRoute } from '../state/route';
import { useStore } from '../state/store';
import { view } from '../state/view';
import { Button } from '../ui/button';
import { focusNext } from '../ui/focus_next';
import { type ActivityMark, markActivity } from '../ui/user_activity';
import { ArchivedLine } from './archived_line';
import { SelectionBar } from './selection_bar';
import { DeleteDialog } from './delete_dialog';
import { useNow } from './now';
import { type RowActions, SessionRow } from './session_row';
import { groupsOf } from './session_groups';
import { arrange } from './session_tree';

export const LIST_ID = 'clew-sessions';

export function SessionList() {
  const host = useHost();
  const route = useRoute();
  const sessions = useStore(host.store, (state) => state.sessions);
  const listed = useStore(host.store, (state) => state.listed);
  const more = useStore(host.store, (state) => state.nextCursor !== null);
  const lines = useMemo(() => arrange(sessions), [sessions]);
  const now = useNow(30_000);
  const by = useStore(view, (state) => state.group);
  const groups = useMemo(() => groupsOf(lines, by, now), [lines, by, now]);
  const list = useRef<HTMLUListElement>(null);
  const [active, setActive] = useState<string | null>(null);
  const [renaming, setRenaming] = useState<string | null>(null);
  const [deleting, setDeleting] = useState<Session | null>(null);
  const [loading, setLoading] = useState(false);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(NONE);
  const [archived, setArchived] = useState<{ ids: string[]; archived: boolean } | null>(null);

  const rows = () => [...(list.current?.querySelectorAll<HTMLAnchorElement>('a[data-session]') ?? [])];
  const focusRow = (id: string, from?: ActivityMark) => focusNext(() => rows().find((row) => row.dataset.session === id), from);
  const setArchivedFor = async (ids: string[], away: boolean) => {
    setChosen(NONE);
    const done = await host.archiveAll(ids, away).catch(() => []);
    if (done.length) setArchived({ ids: done, archived: away });
  };

  const undoArchive = async ({ ids, archived: away }: { ids: string[]; archived: boolean }) => {
    const from = markActivity();
    await host.archiveAll(ids, !away).catch(() => undefined);
    setArchived(null);
    focusRow(ids[0]!, from);
  };
  // Hide the notice when another session is opened.
  useEffect(() => setArchived(null), [route.session]);

  const actions = useMemo<RowActions>(
    () => ({
      startRename: setRenaming,
      rename: (id, title) => {
        setRenaming(null);
        focusRow(id);
        if (title !== null) void host.rename(id, title).catch(() => undefined);
      },
      archive: (session) => void setArchivedFor([session.id], session.archived_at === null),
      pin: (session) => {
        focusRow(session.id);
        void host.pin(session.id, !session.pinned).catch(() => undefined);
      },
      choose: (id) => setChosen((before) => new Set(before.has(id) ? [...before].filter((one) => one !== id) : [...before, id])),
      askDelete: setDeleting,
      setActive,
    }),
    // The captured values are stable.
    [host],
  );

  const known = useStore(host.store, (state) => route.session === null || state.sessions.some((session) => session.id === route.session));
  const checked = useRef<string | null>(null);
  useEffect(() => {
    // Add the open session to the list if its page is not loaded yet; once per session, so that a deleted one does not return.
    if (!listed || checked.current === route.session) return;
    checked.current = route.session;
    if (!known && route.session) host.refetch(route.session);
  }, [host, listed, known, route.session]);

  useEffect(() => {
    if (!listed || !route.session) return;
    rows()
      .find((row) => row.dataset.session === route.session)
      ?.scrollIntoView({ block: 'nearest' });
  }, [listed, known, route.session]);

  const onKeyDown = (event: KeyboardEvent) => {
    const row = (event.target as HTMLElement).closest<HTMLAnchorElement>('a[data-session]');
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const all = rows();
    const at = all.indexOf(row);
    const step = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key];
    const session = host.session(row.dataset.session ?? '');
    if (step !== undefined) all[Math.max(0, Math.min(step, all.length - 1))]?.focus();
    else if (event.key === 'F2' && session) setRenaming(session.id);
    else if (event.key === 'Delete' && session) setDeleting(session);
    else if (event.key === ' ' && session) actions.choose(session.id);
    else if (event.key.toLowerCase() === 'p' && session) actions.pin(session);
    else if (event.key === 'Escape' && chosen.size > 0) setChosen(NONE);
    else return;
    event.preventDefault();
  };

  const onDeleted = (session: Session, deleted: boolean) => {
    setDeleting(null);
    if (!deleted) return focusRow(session.id);
    forgetDraft(session.id);
    const at = lines.findIndex((line) => line.session.id === session.id);
    const next = lines[at + 1] ?? lines[at - 1];
    if (next) focusRow(next.session.id);
    if (route.session === session.id) goTo({ session: null });
    else if (route.side === session.id) goTo({ session: route.session });
  };

  const inFlight = useRef(false);
  const loadMore = async () => {
    if (inFlight.current) return;
    inFlight.current = true;
    setLoading(true);
    await host.loadSessions(true).catch(() => undefined);
    inFlight.current = false;
    setLoading(false);
  };

  const reachable = lines.some((line) => line.session.id === active) ? active : (lines.find((line) => line.session.id === route.session) ?? lines[0])?.session.id;
  const undo = archived && <ArchivedLine what={archived} focused={archived.ids.length > 1} onUndo={() => void undoArchive(archived)} onDone={() => setArchived(null)} />;

  if (listed && lines.length === 0)
    return (
      <>
        {undo}
        <p className="px-4 py-6 text-sm text-quiet">No sessions yet. Send a message to start one.</p>
      </>
    );
  return (
    <>
      {undo}
      {chosen.size > 0 && (
        <SelectionBar
          sessions={sessions.filter((session) => chosen.has(session.id))}
          onArchive={(ids, away) => void setArchivedFor(ids, away)}
          onCancel={() => {
            setChosen(NONE);
            rows().find((row) => row.tabIndex === 0)?.focus();
          }}
        />
      )}
      <ul id={LIST_ID} ref={list} aria-label="Session list" className="grid grid-cols-1 content-start gap-0.5 px-2 pb-2" onKeyDown={onKeyDown}>
        {groups.map(({ name, title, lines: some }) => (
          <li key={title ?? name}>
            <h3 title={title} className="truncate px-2 pt-2.5 pb-1 text-xs font-medium text-quiet">
              {name}
            </h3>
            <ul aria-label={title ?? name} className="grid grid-cols-1 gap-0.5">
              {some.map(({ session, depth }) => (
                <SessionRow
                  key={session.id}
                  session={session}
                  depth={depth}
                  now={now}
                  current={session.id === route.session}
                  active={session.id === reachable}
                  renaming={session.id === renaming}
                  chosen={chosen.size > 0 ? chosen.has(session.id) : null}
                  actions={actions}
                />
              ))}
            </ul>
          </li>
        ))}
      </ul>
      {more && (
        <div ref={(end) => whenVisible(end, () => void loadMore())} className="px-3 pb-3">
          <Button tone="quiet" className="w-full" disabled={loading} onClick={() => void loadMore()}>
            {loading ? 'Loading…' : 'Show more'}
          </Button>
        </div>
      )}
      {deleting && (
        <DeleteDialog
          session={deleting}
          branches={sessions.filter((session) => session.parent_id === deleting.id).length}
          onClose={(deleted) => onDeleted(deleting, deleted)}
        />
      )}
    </>
  );
}

const NONE: ReadonlySet<string> = new Set();

/** Call `then` when the end of the list is nearly visible, to load the next page early. */
function whenVisible(end: HTMLElement | null, then: () => void): (() => void) | undefined {
  if (!end || !('IntersectionObserver' in window)) return undefined;
  const watch = new IntersectionObserver(([seen]) => seen?.isIntersecting && then(), { root: end.parentElement, rootMargin: '600px' });
  watch.observe(end);
  return () => watch.disconnect();
}
