/** Hooks for conversations. */

import { useChat } from '@ai-sdk/react';
import { createContext, useContext, useEffect, useMemo, useState } from 'react';
import { catchUp } from './catch_up';
import type { Conversation } from './conversation';
import { useHost } from './host';

/** Minimum interval between renders of a stream. */
const RENDER_INTERVAL_MS = 40;

export function useConversation(id: string): Conversation | null {
  const host = useHost();
  // Show an open conversation immediately: keys typed between two composers would be lost.
  const [conversation, setConversation] = useState<Conversation | null>(() => host.opened(id));
  useEffect(() => {
    const acquired = host.acquire(id);
    setConversation(acquired);
    return () => {
      setConversation(null);
      host.release(id);
    };
  }, [host, id]);
  return conversation?.id === id ? conversation : null;
}

/** Return the messages and whether they are streaming. */
export function useMessages(conversation: Conversation) {
  const { messages, status } = useChat({ chat: conversation.chat, experimental_throttle: RENDER_INTERVAL_MS });
  const streaming = status === 'streaming' || status === 'submitted';
  const known = streaming ? conversation.joined : null;
  const shown = useMemo(() => catchUp(messages, known), [messages, known]);
  return { messages: shown, streaming, submitted: status === 'submitted' };
}

export const ConversationContext = createContext<Conversation | null>(null);

/** Return the conversation of the surrounding pane. */
export function useThis(): Conversation {
  const conversation = useContext(ConversationContext);
  if (!conversation) throw new Error('this component must be rendered inside a conversation');
  return conversation;
}
