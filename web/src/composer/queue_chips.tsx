/** Messages that wait for their turn, each with a cross. */

import { textOf } from '../api/types';
import type { Message } from '../api/types';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Icon } from '../ui/icon';
import { count } from '../ui/words';
import { Chip } from './chip';

export function QueueChips() {
  const conversation = useThis();
  const queue = useStore(conversation.store, (state) => state.queue);
  if (queue.length === 0) return null;
  return (
    <div className="flex flex-wrap items-center gap-1.5 px-1 pb-1.5">
      <span className="flex items-center gap-1 text-xs text-quiet">
        <Icon name="clock" className="size-3.5" />
        {count(queue.length, 'message waits', 'messages wait')}
      </span>
      <ul aria-label="Queued messages" className="contents">
        {queue.map((message) => (
          <Chip key={message.id} label={wordsOf(message)} remove="Cancel this queued message" onRemove={() => void conversation.cancelQueued(message.id).catch(() => undefined)} />
        ))}
      </ul>
    </div>
  );
}

function wordsOf(message: Message): string {
  const files = message.parts.filter((part) => part.type === 'file').length;
  const text = textOf(message).replace(/\s+/g, ' ').trim();
  return [text, files ? count(files, 'file') : ''].filter(Boolean).join(' · ') || 'Empty message';
}
