/** No session is open: what this is, and the first thing to do. */

import { useState } from 'react';
import { useHost } from '../state/host';
import { goTo } from '../state/route';
import { useStore } from '../state/store';
import { view } from '../state/view';
import { Button, IconButton } from '../ui/button';

export function Welcome() {
  const host = useHost();
  const listed = useStore(host.store, (state) => state.listed);
  const empty = useStore(host.store, (state) => state.sessions.length === 0);
  const models = useStore(host.store, (state) => state.models);
  const [loading, setLoading] = useState(false);
  const chosen = models.find((model) => model.default);
  const keyless = chosen?.id.startsWith('demo/') ?? false;

  const begin = async () => {
    const session = await host.create();
    goTo({ session: session.id });
  };
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
    <main aria-label="Welcome" className="relative grid min-w-0 flex-1 place-items-center overflow-auto p-6">
      <IconButton label="Sessions" icon="menu" className="absolute top-2 left-2 lg:hidden" onClick={() => view.set({ sidebar: true })} />
      {listed && (
        <div className="grid max-w-lg justify-items-start gap-4">
          <h1 className="text-2xl font-semibold">{empty ? 'A thread through the labyrinth' : 'Pick a session, or begin a new one'}</h1>
          <p className="text-quiet">
            clew keeps every word an agent writes. Rewind, branch, summarise and search; close this page whenever you like. What runs goes on,
            and nothing is ever lost.
          </p>
          <div className="flex flex-wrap gap-2">
            <Button data-home look="thread" icon="plus" onClick={() => void begin().catch(() => undefined)}>
              New session
            </Button>
            {(empty || loading) && (
              <Button disabled={loading} onClick={() => void examples().catch(() => undefined)}>
                {loading ? 'Loading examples…' : 'Load examples'}
              </Button>
            )}
          </div>
          {keyless && (
            <p className="text-sm text-quiet">
              The demo model answers without a key. For a real one, set <code className="font-mono text-ink">ANTHROPIC_API_KEY</code> or{' '}
              <code className="font-mono text-ink">OPENAI_API_KEY</code> and start the server again.
            </p>
          )}
        </div>
      )}
    </main>
  );
}
