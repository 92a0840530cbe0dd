/** The chosen model for the next message, stored per session until the session itself uses it. */

import { useCallback, useEffect, useState } from 'react';
import type { Conversation } from '../state/conversation';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { DRAFT_ID } from '../state/draft_session';
import { useSession } from '../top/use_session';
import { afterSend, effectiveChoice, loadChoice, ownName, saveChoice } from './model_choice';

export function useModelChoice(conversation: Conversation) {
  const own = ownName(useSession()?.model);
  const [choice, setChoice] = useState(() => loadChoice(conversation.id));
  const choose = useCallback(
    (name: string | null) => {
      setChoice(name);
      saveChoice(conversation.id, name);
    },
    [conversation],
  );
  useEffect(() => {
    if (choice !== null && own && effectiveChoice(choice, own) === null) choose(null);
  }, [choice, own, choose]);
  const picked = effectiveChoice(choice, own);
  useEffect(() => {
    conversation.store.set({ picked });
    if (conversation.id !== DRAFT_ID) conversation.measureFor(picked);
  }, [conversation, picked]);
  const sent = useCallback((name: string | null) => name !== null && choose(afterSend(name)), [choose]);
  const shown = picked ?? own;
  // Variants are listed under their model.
  const listed = useStore(useHost().store, ({ models }) => models.find(({ id }) => shown === id || shown?.startsWith(`${id}:`)));
  return { own, picked, shown, listed, choose, sent };
}
