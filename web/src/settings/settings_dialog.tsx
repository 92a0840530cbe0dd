/** The settings: those of the server, and those of this browser. */

import { useState } from 'react';
import { errorText } from '../api/problem';
import type { AgentShape, SettingsShape } from '@clew/client';
import { requestNotifications } from '../frame/notifications';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useQuery } from '../state/use_answer';
import { type Density, type Theme, view } from '../state/view';
import { Button } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { keysOf } from './keys';
import { McpServers } from './mcp_servers';
import { PromptList } from './prompt_list';
import { Choice, Section, Toggle } from './rows';

export function SettingsDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Settings" onClose={onClose} wide>
      <div className="grid grid-cols-1 gap-6">
        <Defaults />
        <Keys />
        <McpServers />
        <Appearance />
        <PromptList />
      </div>
    </Dialog>
  );
}

function Defaults() {
  const host = useHost();
  const models = useStore(host.store, (state) => state.models);
  const [version, setVersion] = useState(0);
  const [failed, setFailed] = useState<string | null>(null);
  const { answer, error } = useQuery('GET /api/settings', {}, version);
  const { answer: agents } = useQuery('GET /api/agents', {});
  const change = (body: Partial<SettingsShape>) => {
    host.client.call('PATCH /api/settings', { body }).then(
      () => {
        setFailed(null);
        setVersion((count) => count + 1);
        void host.loadModels().catch(() => undefined);
      },
      (problem: unknown) => setFailed(`${errorText(problem)}.`),
    );
  };
  const usable = models.filter((model) => model.usable).map((model) => model.id);
  const chosen = answer?.default_model ?? '';
  return (
    <Section title="For new sessions" note={answer?.file ? `Stored by the server in ${answer.file}. Agents and projects can override them.` : 'Kept by the server until it restarts.'} error={failed ?? error}>
      <Choice label="Model" value={chosen} onChange={(name) => change({ default_model: name || null })} options={[['', 'First available'], ...[...new Set([...usable, ...(chosen ? [chosen] : [])])].map((name): [string, string] => [name, name])]} />
      <Choice
        label="Agent"
        value={answer?.default_agent ?? 'assistant'}
        onChange={(name) => change({ default_agent: name })}
        options={(agents?.agents ?? []).filter((agent: AgentShape) => agent.mode === 'primary').map((agent): [string, string] => [agent.name, agent.name])}
      />
      <StepLimit key={answer?.max_steps ?? 'none'} limit={answer?.max_steps ?? null} onChange={(limit) => change({ max_steps: limit })} />
    </Section>
  );
}

function StepLimit({ limit, onChange }: { limit: number | null; onChange: (limit: number | null) => void }) {
  const [typed, setTyped] = useState(limit === null ? '' : String(limit));
  const changed = typed !== (limit === null ? '' : String(limit));
  const whole = /^[1-9][0-9]{0,3}$/.test(typed);
  return (
    <form
      className="flex flex-wrap items-center gap-x-3 gap-y-1"
      onSubmit={(event) => {
        event.preventDefault();
        if (typed === '' || whole) onChange(typed === '' ? null : Number(typed));
      }}
    >
      <label className="flex flex-1 flex-wrap items-center gap-x-3">
        <span className="w-32 shrink-0">Max steps per turn</span>
        <input
          inputMode="numeric"
          placeholder="Agent default"
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
          className="w-44 rounded-md border border-line bg-paper px-2 py-1 placeholder:text-quiet"
        />
      </label>
      {changed && (
        <Button type="submit" disabled={typed !== '' && !whole}>
          Save
        </Button>
      )}
      <span className="basis-full text-xs text-quiet">Model calls a turn may make before it stops and offers to continue.</span>
    </form>
  );
}

function Keys() {
  const host = useHost();
  const models = useStore(host.store, (state) => state.models);
  return (
    <Section title="Models and keys" note="Keys are never shown or entered here. Set them in the server's environment or settings; they are read at startup.">
      <ul className="divide-y divide-line rounded-md border border-line">
        {keysOf(models).map(({ provider, usable, count, missing }) => (
          <li key={provider} className="flex flex-wrap items-baseline gap-x-3 px-3 py-1.5">
            <span className="w-28 shrink-0 font-mono text-sm">{provider}</span>
            <span className={`min-w-0 flex-1 basis-56 ${usable ? 'text-good' : 'text-quiet'}`}>{usable ? `${count} available` : missing}</span>
          </li>
        ))}
      </ul>
    </Section>
  );
}

function Appearance() {
  const host = useHost();
  const theme = useStore(view, (state) => state.theme);
  const density = useStore(view, (state) => state.density);
  const notices = useStore(view, (state) => state.notices);
  const [refused, setRefused] = useState<string | null>(null);
  const toggleNotices = async (enabled: boolean) => {
    const allowed = !enabled || (await requestNotifications());
    view.set({ notices: enabled && allowed });
    setRefused(allowed ? null : 'The browser blocks notifications from this page. Allow them in its settings for this site, then try again.');
  };
  return (
    <Section title="This page" note="Stored in this browser only." error={refused}>
      <Choice label="Theme" value={theme} onChange={(name) => view.set({ theme: name as Theme })} options={[['system', 'System'], ['light', 'Light'], ['dark', 'Dark']]} />
      <Choice label="Density" value={density} onChange={(name) => view.set({ density: name as Density })} options={[['comfortable', 'Comfortable'], ['compact', 'Compact']]} />
      <Toggle label="Notify me when a session is waiting or done" on={notices} onChange={(on) => void toggleNotices(on).catch(() => host.store.set({ notice: null }))} />
    </Section>
  );
}
