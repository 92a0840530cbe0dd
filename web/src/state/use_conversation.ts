/** Hooks for conversations. */

import { createContext, useContext, useEffect, useState } from 'react';
import type { Conversation } from './conversation';
import { useHost } from './host';
import { isStreaming } from './open_session';
import { useStore } from './store';

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
export function useMessages({ store }: Conversation) {
  return { messages: useStore(store, (state) => state.messages), streaming: useStore(store, (state) => isStreaming(state.stream)) };
}

export const ConversationContext = createContext<Conversation | null>(null);

/** Return the conversation of the surrounding pane. */
export function useThis(): Conversation {
  const conversation = useContext(ConversationContext);
  if (!conversation) throw new Error('this component must be rendered inside a conversation');
  return conversation;
}
