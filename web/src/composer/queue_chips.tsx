/** Messages that wait for their turn, each with a cross; while the queue is paused, why, and how it goes on. */

import { textOf } from '../api/types';
import type { Message, Status } from '../api/types';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { Icon } from '../ui/icon';
import { count } from '../ui/words';
import { Chip } from './chip';

export function QueueChips() {
  const conversation = useThis();
  const queue = useStore(conversation.store, (state) => state.queue);
  const status = useStore(conversation.store, (state) => state.status);
  const why = PAUSED[status.paused_by ?? ''];
  const startable = status.state === 'idle' || status.state === 'error';
  if (queue.length === 0) return null;
  return (
    <div className="flex flex-wrap items-center gap-1.5 px-1 pb-1.5">
      <span className="flex items-center gap-1 text-xs text-quiet">
        <Icon name="clock" className="size-3.5" />
        {count(queue.length, 'message waits', 'messages wait')}
        {why && <span role="status">· paused {why}</span>}
      </span>
      {why && startable && !status.waiting?.length && (
        <Button look="quiet" className="!px-1.5 !py-0.5 !text-xs" onClick={() => void conversation.fireQueue().catch(() => undefined)}>
          Go on with the queue
        </Button>
      )}
      <ul aria-label="Queued messages" className="contents">
        {queue.map((message) => (
          <Chip key={message.id} label={wordsOf(message)} remove="Cancel this queued message" onRemove={() => void conversation.cancelQueued(message.id).catch(() => undefined)} />
        ))}
      </ul>
    </div>
  );
}

/** Why nothing is fired, in words; the next message goes on with it, too. */
const PAUSED: Record<string, string | undefined> = {
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
