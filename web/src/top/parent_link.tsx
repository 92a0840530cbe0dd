/** A link to the session that a branch was made from. */

import { useEffect, useState } from 'react';
import { useHost } from '../state/host';
import { formatRoute } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';

export function ParentLink() {
  const conversation = useThis();
  const host = useHost();
  const parent = useStore(conversation.store, (state) => state.session?.parent_id ?? null);
  const from = useStore(conversation.store, (state) => state.session?.parent_message_id ?? null);
  const listed = useStore(host.store, (state) => state.sessions.find((session) => session.id === parent));
  // Null while loading, false if it does not exist.
  const [read, setRead] = useState<string | false | null>(null);
  const known = listed !== undefined;

  useEffect(() => {
    if (parent === null || known) return;
    const controller = new AbortController();
    host.client.call('GET /api/sessions/{id}', { path: { id: parent }, signal: controller.signal }).then(
      (session) => setRead(session.title ?? ''),
      () => controller.signal.aborted || setRead(false),
    );
    return () => controller.abort();
  }, [host, parent, known]);

  if (parent === null) return null;
  if (!known && read === false) return <span className="truncate">branched from a deleted session</span>;
  const title = listed?.title ?? (read || 'Untitled');
  return (
    <a href={formatRoute({ session: parent, message: from })} title={`Branched from ${title}`} className="min-w-0 truncate rounded underline decoration-line underline-offset-2 hover:text-ink">
      branched from <bdi dir="auto">{title}</bdi>
    </a>
  );
}
