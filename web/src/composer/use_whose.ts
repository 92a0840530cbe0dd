/** Whose files are meant by an @: the session's, or those of the folder that the next one would work in. */

import { useMemo } from 'react';
import type { Conversation } from '../state/conversation';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { UNBEGUN } from '../state/unbegun';
import type { Whose } from './named_files';

export function useWhose(conversation: Conversation): Whose | null {
  const host = useHost();
  const root = useStore(host.store, (state) => state.server?.workspace_root ?? null);
  const wished = useStore(conversation.store, (state) => state.session?.workspace_root ?? null);
  return useMemo(() => {
    if (conversation.id !== UNBEGUN) return { session: conversation.id };
    const folder = wished ?? root;
    return folder === null ? null : { workspace: folder };
  }, [conversation, wished, root]);
}
