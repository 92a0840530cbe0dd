/** A message's place on the page: named for screen readers, and where a landing ends. */

import { type ReactNode, useEffect, useRef, useState } from 'react';
import type { Message } from '../api/types';
import { useStore } from '../state/store';
import { focusSoon } from './focus_soon';
import { keepInView } from './keep_in_view';
import { useMemory } from './memory';

interface Props {
  message: Message;
  label: string;
  past: boolean;
  className?: string;
  children: ReactNode;
}

export function MessageFrame({ message, label, past, className = '', children }: Props) {
  const memory = useMemory();
  const ref = useRef<HTMLElement>(null);
  const [flash, setFlash] = useState(0);
  const typed = message.metadata?.client_message_id;
  const asked = useStore(memory.store, ({ landing }) =>
    landing && (landing.messageId === message.id || landing.messageId === typed) ? landing.asked : 0,
  );
  useEffect(() => {
    const from = memory.store.get().landing?.from;
    if (asked === 0 || memory.landed === asked || !from) return;
    setFlash(asked);
    const stays = () => {
      // It is shown to who has gone on to something else, and the focus is left where they are.
      if (!from.stayed()) memory.landed = asked;
      return from.stayed();
    };
    return focusSoon(() => ref.current, stays, () => {
      memory.landed = asked;
      // What lies inside another item is not known to the list.
      if (past && ref.current) keepInView(ref.current);
    });
  }, [asked, memory, past]);
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

/** What is shown below may not be what was stored. A model is sent none of it until somebody says that it may stand. */
function Damage({ message }: { message: Message }) {
  const reason = message.metadata?.damaged;
  return (
    <p role="note" className="my-1 rounded-md border border-warn px-3 py-1.5 text-sm text-warn" data-damaged>
      Damaged: {typeof reason === 'string' ? reason : 'not all of it is readable'}. The model is not sent what it says. To let it stand as it is:{' '}
      <code className="break-all">clew check --accept {message.id}</code>
    </p>
  );
}
