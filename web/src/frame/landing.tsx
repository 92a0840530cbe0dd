/** The start page, shown when no session is open. */

import { useEffect, useMemo, useState } from 'react';
import { Composer } from '../composer/composer';
import { Empty } from '../conversation/empty';
import { Notice } from '../conversation/notice';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { DraftSession } from '../state/draft_session';
import { ConversationContext } from '../state/use_conversation';
import { toggleList, view } from '../state/view';
import { Button, IconButton } from '../ui/button';
import { SessionOptions } from './session_options';

export function Landing() {
  const host = useHost();
  const conversation = useMemo(() => new DraftSession(host), [host]);
  const listed = useStore(host.store, (state) => state.listed);
  const empty = useStore(host.store, (state) => state.sessions.length === 0);
  const chosen = useStore(host.store, (state) => state.models.find((model) => model.default)?.id);
  const collapsed = useStore(view, (state) => state.collapsed);
  const [loading, setLoading] = useState(false);

  useEffect(() => {
    const [provider, ...name] = (chosen ?? '').split('/');
    if (chosen) conversation.setModel({ provider_id: provider!, model_id: name.join('/') });
  }, [conversation, chosen]);

  const examples = async () => {
    setLoading(true);
    try {
      const sessions = await host.loadExamples();
      if (sessions[0]) goTo({ session: sessions[0].id });
    } finally {
      setLoading(false);
    }
  };

  return (
    <main aria-label="New conversation" className="relative flex min-w-0 flex-1 flex-col">
      <IconButton label="Sessions" icon="menu" title="Sessions (Ctrl B)" className={`absolute top-2 left-2 ${collapsed ? '' : 'lg:hidden'}`} onClick={toggleList} />
      <ConversationContext value={conversation}>
        <div className="min-h-0 flex-1 overflow-auto pt-12">
          {listed && (
            <div className="mx-auto grid w-full max-w-xl gap-3 px-4">
              <h1 className="text-2xl font-semibold">{empty ? 'A thread through the labyrinth' : 'What next?'}</h1>
              {empty && (
                <p className="text-quiet">
                  clew stores everything an agent writes. Rewind, branch, summarise and search; close this page whenever you like: running turns
                  continue, and nothing is lost.
                </p>
              )}
              {chosen?.startsWith('demo/') && (
                <p className="text-sm text-quiet">
                  The demo model answers without a key. For a real one, set <code className="font-mono text-ink">ANTHROPIC_API_KEY</code> or{' '}
                  <code className="font-mono text-ink">OPENAI_API_KEY</code> and restart the server.
                </p>
              )}
              {(empty || loading) && (
                <div>
                  <Button disabled={loading} onClick={() => void examples().catch(() => undefined)}>
                    {loading ? 'Loading examples…' : 'Load examples'}
                  </Button>
                </div>
              )}
            </div>
          )}
          <Empty first />
        </div>
        <Notice />
        <SessionOptions conversation={conversation} />
        <Composer main />
      </ConversationContext>
    </main>
  );
}
