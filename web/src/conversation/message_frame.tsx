/** The frame of a message: its label for screen readers, and the target of scroll requests. */

import { type ReactNode, useEffect, useRef, useState } from 'react';
import type { Message } from '../api/types';
import { useStore } from '../state/store';
import { focusSoon } from './focus_soon';
import { keepInView } from './keep_in_view';
import { useThreadState } from './thread_state';

interface Props {
  message: Message;
  label: string;
  past: boolean;
  className?: string;
  children: ReactNode;
}

export function MessageFrame({ message, label, past, className = '', children }: Props) {
  const thread = useThreadState();
  const ref = useRef<HTMLElement>(null);
  const [flash, setFlash] = useState(0);
  const clientId = message.metadata?.client_message_id;
  const request = useStore(thread.store, ({ scrollTarget }) =>
    scrollTarget && (scrollTarget.messageId === message.id || scrollTarget.messageId === clientId) ? scrollTarget.seq : 0,
  );
  useEffect(() => {
    const from = thread.store.get().scrollTarget?.from;
    if (request === 0 || thread.scrolled === request || !from) return;
    setFlash(request);
    const mayFocus = () => {
      // The reader has moved on: show the message, but leave the focus alone.
      if (!from.idle()) thread.scrolled = request;
      return from.idle();
    };
    return focusSoon(() => ref.current, mayFocus, () => {
      thread.scrolled = request;
      // The list knows only its items, not messages inside them.
      if (past && ref.current) keepInView(ref.current);
    });
  }, [request, thread, past]);
  return (
    <article
      ref={ref}
      tabIndex={-1}
      aria-label={label}
      data-message={message.id}
      className={`group/message min-w-0 rounded-lg ${flash ? 'clew-flash' : ''} ${className}`}
      onAnimationEnd={(event) => event.animationName === 'clew-flash' && setFlash(0)}
    >
      {message.metadata?.damaged && <Damage message={message} />}
      {children}
    </article>
  );
}

/** A damaged message: it may differ from what was stored, and the model is not sent it until it is accepted. */
function Damage({ message }: { message: Message }) {
  const reason = message.metadata?.damaged;
  return (
    <p role="note" className="my-1 rounded-md border border-warn px-3 py-1.5 text-sm text-warn" data-damaged>
      Damaged: {typeof reason === 'string' ? reason : 'parts of it are unreadable'}. The model does not see this message. To accept it as it is:{' '}
      <code className="break-all">clew check --accept {message.id}</code>
    </p>
  );
}
