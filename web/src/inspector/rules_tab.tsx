/** The permission rules of the session, the project and the agent: list, revoke, add, explain. */

import { type FormEvent, useRef, useState } from 'react';
import type { KeptRule } from '@clew/client';
import { errorText } from '../api/problem';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useQuery } from '../state/use_answer';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';

const SCOPES: { scope: KeptRule['scope']; title: string; none: string }[] = [
  { scope: 'session', title: 'This session', none: 'No session rules.' },
  { scope: 'project', title: 'This project', none: 'No project rules.' },
  { scope: 'agent', title: 'The agent', none: 'No agent rules.' },
];
const TONES = { allow: 'text-good', deny: 'text-bad', ask: 'text-warn' };
/** The capabilities that a rule may name in the place of a tool, in plain words. */
const CAPABILITIES: Partial<Record<string, string>> = {
  'fs.read': 'read files',
  'fs.write': 'change files',
  'shell.run': 'run commands',
  'net.fetch': 'use the network',
  'mcp.call': 'call MCP servers',
  'agent.spawn': 'start agents',
  'memory.write': 'write memories',
};
const FIELD = 'min-w-0 rounded-md border border-line bg-paper px-2 py-1 text-sm text-ink';

export function RulesTab() {
  const conversation = useThis();
  const host = useHost();
  const updated = useStore(conversation.store, (state) => state.session?.updated_at);
  const waiting = useStore(conversation.store, (state) => state.status.waiting?.length ?? 0);
  const [changes, setChanges] = useState(0);
  const [failed, setFailed] = useState<string | null>(null);
  const { answer, error } = useQuery('GET /api/rules', { query: { session: conversation.id } }, `${updated} ${waiting} ${changes}`);
  const acting = (work: Promise<unknown>) =>
    work.then(
      () => {
        setFailed(null);
        setChanges((count) => count + 1);
        return true;
      },
      (problem: unknown) => {
        setFailed(errorText(problem));
        return false;
      },
    );
  const heading = useRef<HTMLDivElement>(null);
  const revoke = (rule: KeptRule) => {
    // The button is removed with its rule; keep the focus in the list.
    heading.current?.focus({ preventScroll: true });
    void acting(host.client.call('DELETE /api/rules', { query: { id: rule.id, session: conversation.id } }));
  };
  if (error) return <p className="p-4 text-sm text-bad">{error}</p>;
  return (
    <div ref={heading} tabIndex={-1} aria-label="Rules in force" role="region" className="grid gap-5 p-4 text-sm">
      {failed && <p role="alert" className="break-words text-bad">{failed}</p>}
      {SCOPES.map(({ scope, title, none }) => {
        const rules = (answer?.rules ?? []).filter((rule) => rule.scope === scope);
        return (
          <section key={scope} aria-label={title} className="grid gap-1.5">
            <h3 className="font-medium">{title}</h3>
            {answer && rules.length === 0 && <p className="text-quiet">{none}</p>}
            <ul className="grid gap-1">
              {rules.map((rule, index) => (
                <li key={`${rule.id} ${index}`} className="flex min-w-0 items-baseline gap-2">
                  <span className={`shrink-0 ${TONES[rule.action]}`}>{rule.action}</span>
                  <code dir="ltr" className="min-w-0 flex-1 font-mono text-xs break-all">
                    {rule.permission} {rule.pattern}
                    <RuleNote rule={rule} />
                  </code>
                  {scope !== 'agent' && (
                    <Button tone="quiet" aria-label={`Revoke ${rule.action} ${rule.permission} ${rule.pattern}`} onClick={() => revoke(rule)}>
                      Revoke
                    </Button>
                  )}
                </li>
              ))}
            </ul>
          </section>
        );
      })}
      <datalist id="capabilities">
        {Object.entries(CAPABILITIES).map(([name, words]) => (
          <option key={name} value={name} label={words} />
        ))}
      </datalist>
      <AddRule onAdd={(body) => acting(host.client.call('POST /api/rules', { body: { ...body, session: conversation.id } }))} />
      <Explain version={`${updated} ${changes}`} />
      <p className="text-quiet">Session rules override project rules, which override agent rules. Calls that no rule covers need your approval.</p>
    </div>
  );
}

/** Notes on a rule: its capability in plain words, and whether it is pinned or unknown. */
function RuleNote({ rule }: { rule: KeptRule }) {
  const capability = CAPABILITIES[rule.permission];
  const unknown = rule.action === 'allow' ? 'unknown permission' : 'unknown permission; applies to every tool';
  const notes = [rule.pinned && 'pinned', capability, rule.unknown && unknown].filter(Boolean);
  if (notes.length === 0) return null;
  return <span className="font-sans text-quiet"> ({notes.join('; ')})</span>;
}

interface NewRule {
  scope: 'session' | 'project';
  permission: string;
  pattern: string;
  action: KeptRule['action'];
}

function AddRule({ onAdd }: { onAdd: (rule: NewRule) => Promise<boolean> }) {
  const conversation = useThis();
  const hasWorkspace = useStore(conversation.store, (state) => state.session?.workspace_root != null);
  const [rule, setRule] = useState<NewRule>({ scope: 'session', permission: 'bash', pattern: '', action: 'allow' });
  const put = (change: Partial<NewRule>) => setRule((old) => ({ ...old, ...change }));
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (rule.pattern.trim()) void onAdd(rule).then((added) => added && put({ pattern: '' }));
  };
  return (
    <form aria-label="Add a rule" className="grid gap-1.5" onSubmit={submit}>
      <h3 className="font-medium">Add a rule</h3>
      <div className="flex flex-wrap gap-1.5">
        <select aria-label="Action" value={rule.action} onChange={(event) => put({ action: event.target.value as NewRule['action'] })} className={FIELD}>
          <option value="allow">allow</option>
          <option value="ask">ask</option>
          <option value="deny">deny</option>
        </select>
        <input aria-label="Tool" dir="ltr" list="capabilities" value={rule.permission} onChange={(event) => put({ permission: event.target.value })} className={`${FIELD} min-w-16 flex-1 font-mono`} />
        <input aria-label="Pattern" dir="ltr" placeholder="git status *" value={rule.pattern} onChange={(event) => put({ pattern: event.target.value })} className={`${FIELD} basis-full font-mono`} />
        <select aria-label="For" value={rule.scope} onChange={(event) => put({ scope: event.target.value as NewRule['scope'] })} className={FIELD}>
          <option value="session">this session</option>
          {hasWorkspace && <option value="project">this project</option>}
        </select>
        <Button type="submit">Add</Button>
      </div>
    </form>
  );
}

function Explain({ version }: { version: string }) {
  const conversation = useThis();
  const [call, setCall] = useState({ tool: 'bash', target: '' });
  const [question, setQuestion] = useState<typeof call | null>(null);
  const { answer, error } = useQuery(
    'GET /api/sessions/{id}/permissions/explain',
    question && { path: { id: conversation.id }, query: question },
    version,
  );
  return (
    <form
      aria-label="Explain a call"
      className="grid gap-1.5"
      onSubmit={(event) => {
        event.preventDefault();
        setQuestion({ ...call });
      }}
    >
      <h3 className="font-medium">Test a call</h3>
      <div className="flex flex-wrap gap-1.5">
        <input aria-label="Tool to test" dir="ltr" list="capabilities" value={call.tool} onChange={(event) => setCall({ ...call, tool: event.target.value })} className={`${FIELD} w-24 font-mono`} />
        <input aria-label="Target to test" dir="ltr" placeholder="git push" value={call.target} onChange={(event) => setCall({ ...call, target: event.target.value })} className={`${FIELD} flex-1 font-mono`} />
        <Button type="submit" disabled={!call.tool.trim()}>
          Explain
        </Button>
      </div>
      <div role="status" className="grid gap-1 break-words">
        {error && <p className="text-bad">{error}</p>}
        {answer && (
          <p>
            <span className={TONES[answer.action]}>{answer.action}</span>: {answer.reason}
          </p>
        )}
        {answer && answer.subjects.length > 1 && answer.subjects.map((subject, index) => (
          <p key={`of ${index}`} className="text-quiet">
            <code className="font-mono text-xs">{subject.permission} {subject.shown}</code> · <span className={TONES[subject.action]}>{subject.action}</span>: {subject.reason}
          </p>
        ))}
        {answer?.considered.map((other, index) => (
          <p key={index} className="text-quiet">
            Not applied: {other.rule.action} <code className="font-mono text-xs">{other.rule.permission} {other.rule.pattern}</code> ({other.scope}): {other.why}
          </p>
        ))}
      </div>
    </form>
  );
}
