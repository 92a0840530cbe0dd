/** The model of the next message, remembered for the session until it is the session's own. */

import { useCallback, useEffect, useState } from 'react';
import type { Conversation } from '../state/conversation';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { UNBEGUN } from '../state/unbegun';
import { useSession } from '../top/use_session';
import { afterSend, loadChoice, ownName, saveChoice, standing } from './model_choice';

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
    if (choice !== null && own && standing(choice, own) === null) choose(null);
  }, [choice, own, choose]);
  const picked = standing(choice, own);
  useEffect(() => {
    conversation.store.set({ picked });
    if (conversation.id !== UNBEGUN) conversation.measureFor(picked);
  }, [conversation, picked]);
  const sent = useCallback((name: string | null) => name !== null && choose(afterSend(name)), [choose]);
  const shown = picked ?? own;
  // A variant of a model is listed under the model.
  const listed = useStore(useHost().store, ({ models }) => models.find(({ id }) => shown === id || shown?.startsWith(`${id}:`)));
  return { own, picked, shown, listed, choose, sent };
}
