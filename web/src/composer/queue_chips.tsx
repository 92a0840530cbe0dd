/** Queued messages: each can be edited, moved, sent now or cancelled; the queue can be paused and resumed. */

import { type KeyboardEvent, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { textOf } from '../api/types';
import type { Message, Status } from '../api/types';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { Icon } from '../ui/icon';
import { Menu } from '../ui/menu';
import { count } from '../ui/format';
import { GrowingField } from './growing_field';

export function QueueChips() {
  const conversation = useThis();
  const queue = useStore(conversation.store, (state) => state.queue);
  const status = useStore(conversation.store, (state) => state.status);
  const pauseReason = PAUSED[status.paused_by ?? ''];
  if (queue.length === 0) return null;
  // While a request is pending there is nothing to resume.
  const pending = status.paused_by === 'waiting';
  return (
    // The layout does not shift when a message is sent or the button changes its label, so that a press does not miss.
    <div className="grid gap-1 px-1 pb-1.5">
      <ol aria-label="Queued messages" className="grid max-h-40 list-none gap-1 overflow-y-auto">
        {queue.map((message, index) => (
          <Queued key={message.id} message={message} position={index} earlier={queue[index - 1]} later={queue[index + 2]} last={index === queue.length - 1} />
        ))}
      </ol>
      <div className="flex min-h-6 flex-wrap items-center gap-x-2 text-xs text-quiet">
        <Icon name="clock" className="size-3.5" />
        {queue.length.toLocaleString('en')} queued
        {pauseReason && <span role="status">· {pauseReason}</span>}
        {!pending && (
          <Button tone="quiet" className="ms-auto !px-1.5 !py-0.5 !text-xs" onClick={() => void conversation.pauseQueue(!pauseReason).catch(() => undefined)}>
            {pauseReason ? 'Resume queue' : 'Pause queue'}
          </Button>
        )}
      </div>
    </div>
  );
}

/** Moving up puts it before `earlier`, moving down before `later`, or at the end without one. */
function Queued({ message, position, earlier, later, last }: { message: Message; position: number; earlier?: Message; later?: Message; last: boolean }) {
  const conversation = useThis();
  const [draft, setDraft] = useState<string | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const row = useRef<HTMLButtonElement>(null);
  const refocus = useRef(false);
  useLayoutEffect(() => {
    // A row loses the focus when it is moved or rendered again after editing.
    if (refocus.current) row.current?.focus();
    refocus.current = false;
  }, [position, draft]);
  const unsaved = useRef<string | null>(null);
  useLayoutEffect(() => {
    unsaved.current = draft !== null && draft.trim() && draft !== textOf(message) ? draft : null;
  });
  // If the message was sent meanwhile, move the unsaved text to the composer.
  useEffect(() => () => void (unsaved.current !== null && conversation.fillComposer(unsaved.current)), [conversation]);
  const label = labelOf(message);
  // The notice above the composer shows errors.
  const ignoringErrors = (action: Promise<void>) => void action.catch(() => undefined);
  const cancel = () => ignoringErrors(conversation.cancelQueued(message.id));
  const up = () => earlier && ignoringErrors(conversation.moveQueued(message.id, earlier.id));
  const down = () => !last && ignoringErrors(conversation.moveQueued(message.id, later?.id ?? null));
  const edit = () => setDraft(textOf(message));
  const close = () => {
    refocus.current = true;
    setDraft(null);
  };
  const save = async () => {
    if (!draft?.trim()) return;
    close();
    if (draft !== textOf(message)) await conversation.editQueued(message.id, draft).catch(() => conversation.fillComposer(draft));
  };

  const onKey = (event: KeyboardEvent) => {
    const moves = event.altKey && (event.key === 'ArrowUp' || event.key === 'ArrowDown');
    refocus.current = moves;
    if (moves && event.key === 'ArrowUp') up();
    else if (moves) down();
    else if (event.key === 'Delete') cancel();
    else return;
    event.preventDefault();
    event.stopPropagation(); // the same keys jump between messages
  };
  const onFieldKey = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) void save();
    else if (event.key === 'Escape') close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  if (draft !== null) {
    return (
      <li className="flex items-end gap-1 rounded-lg border border-thread bg-panel ps-2.5">
        <GrowingField ref={field} autoFocus aria-label="Queued message" value={draft} onChange={(event) => setDraft(event.target.value)} onKeyDown={onFieldKey} className="min-w-0 flex-1 py-1 text-sm focus-visible:outline-none" />
        <Button tone="quiet" className="!text-xs" onClick={close}>
          Cancel
        </Button>
        <Button tone="quiet" className="!text-xs text-thread" disabled={!draft.trim()} onClick={() => void save()}>
          Save
        </Button>
      </li>
    );
  }
  return (
    <li className="flex min-w-0 items-center gap-1 rounded-lg border border-line bg-panel ps-1 text-xs">
      <button
        ref={row}
        type="button"
        aria-label={`Edit queued message: ${label}`}
        title={`${label}\n\nEnter edits, Alt+Up or Alt+Down moves, Delete cancels`}
        aria-keyshortcuts="Alt+ArrowUp Alt+ArrowDown Delete"
        onClick={edit}
        onKeyDown={onKey}
        className="min-w-0 flex-1 truncate rounded px-1.5 py-1 text-start hover:bg-raised"
      >
        <bdi dir="auto">{label}</bdi>
      </button>
      <Menu
        label={`Actions for queued message: ${label}`}
        className="inline-flex size-7 shrink-0 items-center justify-center rounded-md text-quiet hover:bg-raised hover:text-ink"
        items={[
          { label: 'Send now', icon: 'send', pick: () => ignoringErrors(conversation.sendQueued(message.id)) },
          { label: 'Edit', icon: 'edit', pick: edit },
          { label: 'Move up', icon: 'up', disabled: !earlier, pick: up },
          { label: 'Move down', icon: 'down', disabled: last, pick: down },
        ]}
      >
        <Icon name="dots" className="size-3.5" />
      </Menu>
      <button type="button" aria-label={`Cancel queued message: ${label}`} title="Cancel queued message" onClick={cancel} className="inline-flex size-7 shrink-0 items-center justify-center rounded-md text-quiet hover:bg-raised hover:text-ink">
        <Icon name="close" className="size-3" />
      </button>
    </li>
  );
}

/** Labels for the reasons of a pause. Sending a message resumes it too, unless the user paused it. */
const PAUSED: Record<string, string | undefined> = {
  person: 'paused',
  abort: 'paused after a stop',
  error: 'paused after an error',
  restart: 'paused after a restart',
  waiting: 'paused until you respond',
} satisfies Record<NonNullable<Status['paused_by']>, string>;

function labelOf(message: Message): string {
  const files = message.parts.filter((part) => part.type === 'file').length;
  const text = textOf(message).replace(/\s+/g, ' ').trim();
  return [text, files ? count(files, 'file') : ''].filter(Boolean).join(' · ') || 'Empty message';
}
