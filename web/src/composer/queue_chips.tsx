/** Messages that wait for their turn: each can be reworded, moved, sent now and cancelled; all of them held back and let go. */

import { type KeyboardEvent, useEffect, useLayoutEffect, useRef, useState } from 'react';
import { textOf } from '../api/types';
import type { Message, Status } from '../api/types';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { Icon } from '../ui/icon';
import { Menu } from '../ui/menu';
import { count } from '../ui/words';
import { GrowingField } from './growing_field';

export function QueueChips() {
  const conversation = useThis();
  const queue = useStore(conversation.store, (state) => state.queue);
  const status = useStore(conversation.store, (state) => state.status);
  const why = PAUSED[status.paused_by ?? ''];
  if (queue.length === 0) return null;
  // Until what is asked is answered there is nothing to let go.
  const asks = status.paused_by === 'waiting';
  return (
    // The line below does not move when one is sent, nor its button when it says something else: that is when it is pressed.
    <div className="grid gap-1 px-1 pb-1.5">
      <ol aria-label="Queued messages" className="grid max-h-40 list-none gap-1 overflow-y-auto">
        {queue.map((message, index) => (
          <Queued key={message.id} message={message} place={index} earlier={queue[index - 1]} later={queue[index + 2]} last={index === queue.length - 1} />
        ))}
      </ol>
      <div className="flex min-h-6 flex-wrap items-center gap-x-2 text-xs text-quiet">
        <Icon name="clock" className="size-3.5" />
        {count(queue.length, 'message waits', 'messages wait')}
        {why && <span role="status">· paused {why}</span>}
        {!asks && (
          <Button look="quiet" className="ms-auto !px-1.5 !py-0.5 !text-xs" onClick={() => void conversation.pauseQueue(!why).catch(() => undefined)}>
            {why ? 'Go on with the queue' : 'Pause the queue'}
          </Button>
        )}
      </div>
    </div>
  );
}

/** `earlier` is what it would be moved before, one up; `later` the same one down, none for the end. */
function Queued({ message, place, earlier, later, last }: { message: Message; place: number; earlier?: Message; later?: Message; last: boolean }) {
  const conversation = useThis();
  const [draft, setDraft] = useState<string | null>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const row = useRef<HTMLButtonElement>(null);
  const keeps = useRef(false);
  useLayoutEffect(() => {
    // A row that is moved, or drawn anew after its field, has lost the focus that whoever did it had there.
    if (keeps.current) row.current?.focus();
    keeps.current = false;
  }, [place, draft]);
  const unsaved = useRef<string | null>(null);
  useLayoutEffect(() => {
    unsaved.current = draft !== null && draft.trim() && draft !== textOf(message) ? draft : null;
  });
  // Where it was sent meanwhile, nothing that was typed is lost.
  useEffect(() => () => void (unsaved.current !== null && conversation.offer(unsaved.current)), [conversation]);
  const words = wordsOf(message);
  // The notice above the composer says why something was refused.
  const quietly = (doing: Promise<void>) => void doing.catch(() => undefined);
  const cancel = () => quietly(conversation.cancelQueued(message.id));
  const up = () => earlier && quietly(conversation.moveQueued(message.id, earlier.id));
  const down = () => !last && quietly(conversation.moveQueued(message.id, later?.id ?? null));
  const edit = () => setDraft(textOf(message));
  const leave = () => {
    keeps.current = true;
    setDraft(null);
  };
  const save = async () => {
    if (!draft?.trim()) return;
    leave();
    if (draft !== textOf(message)) await conversation.editQueued(message.id, draft).catch(() => conversation.offer(draft));
  };

  const onKey = (event: KeyboardEvent) => {
    const moves = event.altKey && (event.key === 'ArrowUp' || event.key === 'ArrowDown');
    keeps.current = moves;
    if (moves && event.key === 'ArrowUp') up();
    else if (moves) down();
    else if (event.key === 'Delete') cancel();
    else return;
    event.preventDefault();
    event.stopPropagation(); // the same keys jump between one's questions
  };
  const onFieldKey = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    if (event.key === 'Enter' && !event.shiftKey) void save();
    else if (event.key === 'Escape') leave();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  if (draft !== null) {
    return (
      <li className="flex items-end gap-1 rounded-lg border border-thread bg-panel ps-2.5">
        <GrowingField ref={field} autoFocus aria-label="Queued message" value={draft} onChange={(event) => setDraft(event.target.value)} onKeyDown={onFieldKey} className="min-w-0 flex-1 py-1 text-sm focus-visible:outline-none" />
        <Button look="quiet" className="!text-xs" onClick={leave}>
          Leave it
        </Button>
        <Button look="quiet" className="!text-xs text-thread" disabled={!draft.trim()} onClick={() => void save()}>
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
        aria-label={`Edit this queued message: ${words}`}
        title={`${words}\n\nEnter edits, Alt with Up or Down moves, Delete cancels`}
        aria-keyshortcuts="Alt+ArrowUp Alt+ArrowDown Delete"
        onClick={edit}
        onKeyDown={onKey}
        className="min-w-0 flex-1 truncate rounded px-1.5 py-1 text-start hover:bg-raised"
      >
        <bdi dir="auto">{words}</bdi>
      </button>
      <Menu
        label={`This queued message: ${words}`}
        className="inline-flex size-7 shrink-0 items-center justify-center rounded-md text-quiet hover:bg-raised hover:text-ink"
        items={[
          { label: 'Send now', icon: 'send', pick: () => quietly(conversation.sendQueued(message.id)) },
          { label: 'Edit', icon: 'edit', pick: edit },
          { label: 'Move up', icon: 'up', disabled: !earlier, pick: up },
          { label: 'Move down', icon: 'down', disabled: last, pick: down },
        ]}
      >
        <Icon name="dots" className="size-3.5" />
      </Menu>
      <button type="button" aria-label={`Cancel this queued message: ${words}`} title="Cancel this queued message" onClick={cancel} className="inline-flex size-7 shrink-0 items-center justify-center rounded-md text-quiet hover:bg-raised hover:text-ink">
        <Icon name="close" className="size-3" />
      </button>
    </li>
  );
}

/** Why nothing is fired, in words; the next message goes on with it, too, unless a person has paused it. */
const PAUSED: Record<string, string | undefined> = {
  person: 'by you',
  abort: 'since it was stopped',
  error: 'since a turn failed',
  restart: 'since a restart',
  waiting: 'until you have answered',
} satisfies Record<NonNullable<Status['paused_by']>, string>;

function wordsOf(message: Message): string {
  const files = message.parts.filter((part) => part.type === 'file').length;
  const text = textOf(message).replace(/\s+/g, ' ').trim();
  return [text, files ? count(files, 'file') : ''].filter(Boolean).join(' · ') || 'Empty message';
}
