/** One session in the list. */

import { memo, useState } from 'react';
import { modelName, type Session } from '../api/types';
import { formatRoute } from '../state/route';
import { composerField, focusQuietly } from '../ui/composer_field';
import { Icon } from '../ui/icon';
import { Menu } from '../ui/menu';
import { age, cost, count, moment, tokens } from '../ui/format';
import { RenameField } from './rename_field';
import { StateDot } from './state_dot';

export interface RowActions {
  startRename: (id: string) => void;
  rename: (id: string, title: string | null) => void;
  archive: (session: Session) => void;
  pin: (session: Session) => void;
  /** Select or deselect for actions on several sessions. */
  choose: (id: string) => void;
  askDelete: (session: Session) => void;
  /** The row that Tab reaches. */
  setActive: (id: string) => void;
}

interface Props {
  session: Session;
  depth: number;
  now: number;
  current: boolean;
  active: boolean;
  renaming: boolean;
  /** Null while nothing is selected. */
  chosen: boolean | null;
  actions: RowActions;
}

/** Without hover the menu is always visible. */
const TOUCH = typeof window !== 'undefined' && window.matchMedia?.('(hover: none)').matches;

export const SessionRow = memo(function SessionRow({ session, depth, now, current, active, renaming, chosen, actions }: Props) {
  const [hovered, setHovered] = useState(false);
  const archived = session.archived_at !== null;
  const title = session.title || 'Untitled';
  return (
    <li
      data-row
      className={`group relative rounded-md ${current || chosen ? 'bg-thread-soft' : 'hover:bg-raised'} ${chosen === null ? '' : 'ps-7'}`}
      style={{ marginInlineStart: `${Math.min(depth, 4) * 0.875}rem` }}
      onPointerEnter={() => setHovered(true)}
      onPointerLeave={() => setHovered(false)}
      onFocus={() => actions.setActive(session.id)}
    >
      {depth > 0 && <span aria-hidden="true" className="absolute -left-2 top-0 h-4 w-1.5 rounded-bl border-b border-l border-line" />}
      {chosen !== null && (
        <input
          type="checkbox"
          tabIndex={-1}
          aria-label={`Select ${title}`}
          checked={chosen}
          onChange={() => actions.choose(session.id)}
          className="absolute top-2 left-2 size-3.5 accent-thread"
        />
      )}
      {renaming ? (
        <div className="px-1 py-2">
          <RenameField title={session.title} onDone={(name) => actions.rename(session.id, name)} className="text-sm" />
        </div>
      ) : (
        <a
          href={formatRoute({ session: session.id })}
          data-session={session.id}
          tabIndex={active ? 0 : -1}
          data-home={active || undefined}
          aria-current={current ? 'page' : undefined}
          className={`block rounded-md px-2 py-1.5 pointer-coarse:pe-12 ${archived ? 'italic' : ''}`}
          title={session.title ?? undefined}
          onClick={(event) => {
            // The session is already open: focus its composer.
            if (current && chosen === null && !(event.shiftKey || event.ctrlKey || event.metaKey)) focusQuietly(composerField());
            if (chosen === null && !event.shiftKey) return;
            // During a selection a click selects; Shift starts one.
            event.preventDefault();
            actions.choose(session.id);
          }}
        >
          <span className="flex items-center gap-1.5">
            <StateDot status={session.status} />
            <bdi dir="auto" className={`min-w-0 flex-1 truncate text-sm ${session.title ? '' : 'text-quiet'} ${current ? 'font-medium' : ''}`}>
              {title}
            </bdi>
            {session.pinned && (
              <span className="text-quiet" title="Pinned">
                <Icon name="pin" className="size-3" />
                <span className="sr-only">Pinned</span>
              </span>
            )}
            <time className="shrink-0 text-xs text-quiet" dateTime={new Date(session.updated_at).toISOString()} title={moment(session.updated_at)}>
              {age(session.updated_at, now)}
            </time>
          </span>
          <span className="flex items-center gap-1.5 pe-7 text-xs text-quiet pointer-coarse:pe-0">
            <span className="truncate">{modelName({ ...session.model, variant: null })}</span>
            {session.total_tokens > 0 && (
              <span className="shrink-0 whitespace-nowrap" title={count(session.total_tokens, 'token')}>
                · {tokens(session.total_tokens)}
                <span className="sr-only"> tokens</span>
              </span>
            )}
            {session.spend.cost_usd > 0 && (
              <span className="shrink-0 whitespace-nowrap" title={`${count(session.spend.calls, 'model call')}, ${count(session.spend.subagents, 'subagent')} included`}>
                · {cost(session.spend.cost_usd)}
              </span>
            )}
            {archived && <span className="shrink-0">· archived</span>}
            {session.metadata.ephemeral === true && <span className="shrink-0">· sidecar</span>}
          </span>
        </a>
      )}
      {!renaming && (hovered || active || current || TOUCH) && (
        <div className={`absolute right-1 bottom-1 pointer-coarse:right-0 pointer-coarse:bottom-0.5 opacity-0 group-focus-within:opacity-100 group-hover:opacity-100 has-aria-expanded:opacity-100 pointer-coarse:opacity-100 [@media(hover:none)]:opacity-100`}>
          <Menu
            label={`Actions for ${title}`}
            className="inline-flex size-6 items-center justify-center rounded text-quiet hover:bg-panel hover:text-ink"
            items={[
              { label: 'Rename', icon: 'edit', pick: () => actions.startRename(session.id) },
              { label: archived ? 'Unarchive' : 'Archive', icon: 'archive', pick: () => actions.archive(session) },
              { label: session.pinned ? 'Unpin' : 'Pin', icon: 'pin', pick: () => actions.pin(session) },
              { label: 'Select', icon: 'check', pick: () => actions.choose(session.id) },
              { label: 'Delete…', icon: 'trash', danger: true, pick: () => actions.askDelete(session) },
            ]}
          >
            <Icon name="dots" />
          </Menu>
        </div>
      )}
    </li>
  );
});
