/** The folder and agent of the next session. */

import { useEffect, useId, useMemo, useState } from 'react';
import type { AgentShape } from '@clew/client';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import type { DraftSession } from '../state/draft_session';
import { composerField } from '../ui/composer_field';

const DEBOUNCE_MS = 120;

export function SessionOptions({ conversation }: { conversation: DraftSession }) {
  const host = useHost();
  const root = useStore(host.store, (state) => state.server?.workspace_root ?? null);
  const sessions = useStore(host.store, (state) => state.sessions);
  const known = useMemo(() => [...new Set(sessions.flatMap((session) => session.workspace_root ?? []))].slice(0, 20), [sessions]);
  const [agents, setAgents] = useState<AgentShape[]>([]);
  const [folder, setFolder] = useState('');
  const [folders, setFolders] = useState<readonly string[]>([]);
  const list = useId();
  useEffect(() => {
    // Complete folders below the path typed so far, up to its last slash.
    const [, parent, name] = /^(.*\/)([^/]*)$/.exec(folder) ?? [];
    if (parent === undefined) return setFolders([]);
    const controller = new AbortController();
    const timer = setTimeout(() => {
      host.client.call('GET /api/files', { query: { workspace: parent, q: name, folders: true, limit: 20 }, signal: controller.signal }).then(
        ({ files }) => setFolders(files.map((file) => parent + file)),
        () => setFolders([]),
      );
    }, DEBOUNCE_MS);
    return () => {
      clearTimeout(timer);
      controller.abort();
    };
  }, [host, folder]);
  useEffect(() => {
    host.client.call('GET /api/agents', {}).then(
      ({ agents }) => setAgents(agents.filter((agent) => agent.mode === 'primary')),
      () => undefined, // Falls back to the default agent.
    );
  }, [host]);
  if (root === null) return null;
  return (
    <div className="mx-auto flex w-full max-w-3xl flex-wrap items-center gap-x-4 gap-y-1 px-6 pb-1 text-sm text-quiet max-sm:px-4">
      <label className="flex min-w-0 flex-1 items-center gap-1.5">
        Folder
        <input
          value={folder}
          placeholder={root}
          list={list}
          spellCheck={false}
          autoComplete="off"
          onChange={(event) => {
            setFolder(event.target.value);
            conversation.setOptions({ folder: event.target.value.trim() || null });
          }}
          onKeyDown={(event) => {
            // The folder is applied while typing; continue in the composer.
            if (event.key !== 'Enter' || event.nativeEvent.isComposing) return;
            event.preventDefault();
            composerField(event.currentTarget.closest('main'))?.focus();
          }}
          className="min-w-0 flex-1 truncate rounded-md border border-line bg-transparent px-1.5 py-0.5 font-mono text-xs text-ink placeholder:text-quiet"
        />
        <datalist id={list}>
          {[...new Set([...folders, ...known])].map((path) => (
            <option key={path} value={path} />
          ))}
        </datalist>
      </label>
      {agents.length > 1 && (
        <label className="flex items-center gap-1.5">
          Agent
          <select onChange={(event) => conversation.setOptions({ agent: event.target.value })} className="field-sizing-content rounded-md bg-transparent px-1.5 py-0.5 text-ink hover:bg-panel">
            {agents.map((agent) => (
              <option key={agent.name} value={agent.name} title={agent.description} className="bg-raised text-ink">
                {agent.name}
              </option>
            ))}
          </select>
        </label>
      )}
    </div>
  );
}
