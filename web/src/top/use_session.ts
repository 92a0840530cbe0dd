/** Returns the newer copy of the session: the conversation does not refresh while streaming, the list does. */

import type { Session } from '../api/types';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';

export function useSession(): Session | null {
  const conversation = useThis();
  const host = useHost();
  const own = useStore(conversation.store, (state) => state.session);
  const listed = useStore(host.store, (state) => state.sessions.find((session) => session.id === conversation.id));
  if (!own || !listed) return own;
  return listed.updated_at > own.updated_at ? listed : own;
}
