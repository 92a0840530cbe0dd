/** A conversation for as long as a component shows it. */

import { useChat } from '@ai-sdk/react';
import { createContext, useContext, useEffect, useMemo, useState } from 'react';
import { caughtUp } from './caught_up';
import type { Conversation } from './conversation';
import { useHost } from './host';

/** How often a stream is drawn, at most. */
const DRAW_MS = 40;

export function useConversation(id: string): Conversation | null {
  const host = useHost();
  // One that is open already is drawn at once: between two composers a key would be lost.
  const [conversation, setConversation] = useState<Conversation | null>(() => host.held(id));
  useEffect(() => {
    const held = host.hold(id);
    setConversation(held);
    return () => {
      setConversation(null);
      host.release(id);
    };
  }, [host, id]);
  return conversation?.id === id ? conversation : null;
}

/** Its messages and whether they are being written right now. */
export function useMessages(conversation: Conversation) {
  const { messages, status } = useChat({ chat: conversation.chat, experimental_throttle: DRAW_MS });
  const streaming = status === 'streaming' || status === 'submitted';
  const known = streaming ? conversation.joined : null;
  const shown = useMemo(() => caughtUp(messages, known), [messages, known]);
  return { messages: shown, streaming, submitted: status === 'submitted' };
}

export const ConversationContext = createContext<Conversation | null>(null);

/** The conversation that the components around this one show. */
export function useThis(): Conversation {
  const conversation = useContext(ConversationContext);
  if (!conversation) throw new Error('no conversation around this component');
  return conversation;
}
