/** The MCP servers: their state, errors, tools, and a button to start them. */

import type { ServerState } from '@clew/client';
import { useState } from 'react';
import { errorText } from '../api/problem';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useQuery } from '../state/use_answer';
import { Button } from '../ui/button';
import { Section } from './rows';

const TONES: Record<ServerState['state'], string> = { ready: 'text-good', failed: 'text-bad', starting: 'text-quiet', idle: 'text-quiet', off: 'text-quiet' };

export function McpServers() {
  const host = useHost();
  const [version, setVersion] = useState(0);
  const [starting, setStarting] = useState<string | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  // Only users who see the whole host see its servers.
  const whole = useStore(host.store, (state) => state.server?.owner === null);
  const { answer } = useQuery('GET /api/mcp-servers', whole ? {} : null, version);
  if (!answer) return null;
  const start = (name: string) => {
    setStarting(name);
    host.client
      .call('POST /api/mcp-servers/{name}/start', { path: { name } })
      .then(
        () => setFailed(null),
        (problem: unknown) => setFailed(`${errorText(problem)}.`),
      )
      .finally(() => {
        setStarting(null);
        setVersion((count) => count + 1);
      });
  };
  return (
    <Section title="MCP servers" note="Configured in the server's config.toml. You approve a server's tools before a model sees them; a server starts when a session first needs it." error={failed}>
      {answer.servers.length === 0 ? (
        <p className="text-sm text-quiet">No MCP servers</p>
      ) : (
        <ul className="divide-y divide-line rounded-md border border-line">
          {answer.servers.map((server) => (
            <li key={server.name} className="flex flex-wrap items-baseline gap-x-3 gap-y-1 px-3 py-1.5">
              <span className="w-28 shrink-0 truncate font-mono text-sm">{server.name}</span>
              <span className="min-w-0 flex-1 basis-56 text-sm [overflow-wrap:anywhere]">
                <span className={TONES[server.state]}>{starting === server.name ? 'starting' : server.state}</span>
                {server.digest && ` · ${server.tools?.length ?? 0} tools`}
                {server.trusted && ' · trusted'} · <span className="text-quiet">{server.target}</span>
                {[server.error, ...(server.notices ?? [])].map((notice) => notice && <span key={notice} className="block text-xs text-bad">{notice}</span>)}
              </span>
              {server.state !== 'off' && (
                <Button tone="quiet" aria-label={`Start ${server.name}`} disabled={starting !== null} onClick={() => start(server.name)}>
                  {server.state === 'ready' ? 'Refresh' : 'Start'}
                </Button>
              )}
              {server.told && (
                <details className="basis-full text-xs">
                  <summary className="cursor-pointer text-quiet">Tool definitions</summary>
                  <pre dir="auto" className="mt-1 max-h-80 overflow-auto rounded-md bg-panel p-2 whitespace-pre-wrap [overflow-wrap:anywhere]">{server.told}</pre>
                </details>
              )}
            </li>
          ))}
        </ul>
      )}
    </Section>
  );
}
