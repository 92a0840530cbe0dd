/** The MCP servers whose tools agents have: how each is, what is wrong with it, and a way to start it. */

import type { ServerState } from '@clew/client';
import { useState } from 'react';
import { inWords } from '../api/problem';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useAnswer } from '../state/use_answer';
import { Button } from '../ui/button';
import { Section } from './rows';

const LOOK: Record<ServerState['state'], string> = { ready: 'text-good', failed: 'text-bad', starting: 'text-quiet', idle: 'text-quiet', off: 'text-quiet' };

export function McpServers() {
  const host = useHost();
  const [version, setVersion] = useState(0);
  const [starting, setStarting] = useState<string | null>(null);
  const [failed, setFailed] = useState<string | null>(null);
  // Whoever does not see the whole host has none to see.
  const whole = useStore(host.store, (state) => state.server?.owner === null);
  const { answer } = useAnswer('GET /api/mcp-servers', whole ? {} : null, version);
  if (!answer) return null;
  const start = (name: string) => {
    setStarting(name);
    host.client
      .call('POST /api/mcp-servers/{name}/start', { path: { name } })
      .then(
        () => setFailed(null),
        (problem: unknown) => setFailed(`${inWords(problem)}.`),
      )
      .finally(() => {
        setStarting(null);
        setVersion((count) => count + 1);
      });
  };
  return (
    <Section title="MCP servers" note="Named in the server's config.toml. What one says its tools are is asked about before a model is told; it is started when a session first needs it." error={failed}>
      {answer.servers.length === 0 ? (
        <p className="text-sm text-quiet">None is named yet.</p>
      ) : (
        <ul className="divide-y divide-line rounded-md border border-line">
          {answer.servers.map((server) => (
            <li key={server.name} className="flex flex-wrap items-baseline gap-x-3 gap-y-1 px-3 py-1.5">
              <span className="w-28 shrink-0 truncate font-mono text-sm">{server.name}</span>
              <span className="min-w-0 flex-1 basis-56 text-sm [overflow-wrap:anywhere]">
                <span className={LOOK[server.state]}>{starting === server.name ? 'starting' : server.state}</span>
                {server.digest && ` · ${server.tools?.length ?? 0} tools`}
                {server.trusted && ' · trusted'} · <span className="text-quiet">{server.target}</span>
                {[server.error, ...(server.notices ?? [])].map((words) => words && <span key={words} className="block text-xs text-bad">{words}</span>)}
              </span>
              {server.state !== 'off' && (
                <Button look="quiet" aria-label={`Start ${server.name}`} disabled={starting !== null} onClick={() => start(server.name)}>
                  {server.state === 'ready' ? 'Ask again' : 'Start'}
                </Button>
              )}
              {server.told && (
                <details className="basis-full text-xs">
                  <summary className="cursor-pointer text-quiet">What it says its tools are</summary>
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
