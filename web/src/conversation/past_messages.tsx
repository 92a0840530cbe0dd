/** Undone or summarised messages, read-only and greyed out. */

import { type ReactNode, useEffect, useState } from 'react';
import type { Message } from '../api/types';
import { errorText } from '../api/problem';
import { isSummary } from '../state/timeline';
import { Button } from '../ui/button';
import { AssistantMessage } from './assistant_message';
import { UserMessage } from './user_message';

export function PastMessages({ messages }: { messages: readonly Message[] }) {
  return (
    <div className="border-l-2 border-dashed border-line pl-3 text-quiet grayscale">
      {messages.map((message) => {
        if (isSummary(message)) return null;
        return message.role === 'user' ? <UserMessage key={message.id} message={message} past /> : <AssistantMessage key={message.id} message={message} past />;
      })}
      {messages.length === 0 && <p className="py-1 text-sm">No messages.</p>}
    </div>
  );
}

/** Loads something once and shows the progress and errors. `read` must be stable. */
export function Loaded<T>({ read, children }: { read: () => Promise<T>; children: (value: T) => ReactNode }) {
  const [state, setState] = useState<{ value: T } | { error: unknown } | null>(null);
  const [tries, setTries] = useState(0);
  useEffect(() => {
    let unmounted = false;
    setState(null);
    read().then(
      (value) => !unmounted && setState({ value }),
      (error: unknown) => !unmounted && setState({ error }),
    );
    return () => {
      unmounted = true;
    };
  }, [read, tries]);
  if (state === null) return <p className="py-1 text-sm text-quiet">Loading…</p>;
  if ('error' in state) {
    return (
      <p role="alert" className="flex flex-wrap items-center gap-2 py-1 text-sm text-bad">
        Could not load these messages: {errorText(state.error)}.
        <Button onClick={() => setTries(tries + 1)}>Retry</Button>
      </p>
    );
  }
  return children(state.value);
}
