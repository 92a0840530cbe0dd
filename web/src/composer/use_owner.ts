/** Returns where @ mentions are looked up: in the session, or in the folder chosen for the next one. */

import { useMemo } from 'react';
import type { Conversation } from '../state/conversation';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { DRAFT_ID } from '../state/draft_session';
import type { FileOwner } from './mentions';

export function useOwner(conversation: Conversation): FileOwner | null {
  const host = useHost();
  const root = useStore(host.store, (state) => state.server?.workspace_root ?? null);
  const chosen = useStore(conversation.store, (state) => state.session?.workspace_root ?? null);
  return useMemo(() => {
    if (conversation.id !== DRAFT_ID) return { session: conversation.id };
    const folder = chosen ?? root;
    return folder === null ? null : { workspace: folder };
  }, [conversation, chosen, root]);
}
