/** A message's place on the page: named for screen readers, and where a landing ends. */

import { type ReactNode, useEffect, useRef, useState } from 'react';
import type { Message } from '../api/types';
import { useStore } from '../state/store';
import { focusSoon } from './focus_soon';
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
    if (asked === 0 || memory.landed === asked) return;
    setFlash(asked);
    focusSoon(() => ref.current, undefined, () => {
      memory.landed = asked;
      // What lies inside another item is not known to the list.
      if (past) ref.current?.scrollIntoView({ block: 'center' });
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
      {children}
    </article>
  );
}
