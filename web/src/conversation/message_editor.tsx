/** Edits a user message: Enter sends, Esc cancels. */

import { useState } from 'react';
import { keyOf, type Message, textOf } from '../api/types';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { useDraft, useThreadState } from './thread_state';

export function MessageEditor({ message, files }: { message: Message; files: number }) {
  const conversation = useThis();
  const thread = useThreadState();
  const key = `edit ${keyOf(message)}`;
  const [text, setText] = useDraft(key, textOf(message));
  const [sending, setSending] = useState(false);

  const close = () => {
    thread.drafts.delete(key);
    thread.store.set({ editing: null });
  };
  const send = async () => {
    if (!text.trim() || sending) return;
    setSending(true);
    try {
      await conversation.edit(message.id, text);
      close();
    } catch {
      // Stay open with the text; the notice shows the error.
      setSending(false);
    }
  };

  return (
    <form
      aria-label="Edit the message"
      className="grid w-full gap-2 rounded-2xl border border-line bg-raised p-2.5"
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
    >
      <textarea
        autoFocus
        dir="auto"
        aria-label="The message"
        value={text}
        onChange={(event) => setText(event.target.value)}
        onFocus={(event) => event.target.setSelectionRange(event.target.value.length, event.target.value.length)}
        onKeyDown={(event) => {
          if (event.nativeEvent.isComposing) return;
          if (event.key === 'Enter' && !event.shiftKey) {
            event.preventDefault();
            void send();
          } else if (event.key === 'Escape') {
            event.preventDefault();
            event.stopPropagation();
            close();
          }
        }}
        className="field-sizing-content max-h-80 min-h-16 w-full resize-none rounded-md bg-transparent px-1.5 py-1 outline-offset-2"
      />
      <div className="flex flex-wrap items-center justify-end gap-2">
        <span className="min-w-0 flex-1 text-xs text-quiet">
          {files > 0 ? 'Its files are included. ' : ''}Later messages are undone and can be restored.
        </span>
        <Button tone="quiet" onClick={close}>
          Cancel
        </Button>
        <Button type="submit" tone="thread" disabled={sending || !text.trim()}>
          Send
        </Button>
      </div>
    </form>
  );
}
