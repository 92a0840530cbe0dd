/** Webhooks: list and add. A secret is shown once, when it is created. */

import { useState } from 'react';
import type { WebhookShape } from '@clew/client';
import { useHost } from '../state/host';
import { useQuery } from '../state/use_answer';
import { Button } from '../ui/button';
import { Field } from './field';
import { Section } from './section';
import { useAction } from './use_action';
import { whereTo } from './labels';

export function Webhooks() {
  const host = useHost();
  const { version, error, act } = useAction();
  const { answer, error: unread } = useQuery('GET /api/hooks', {}, version);
  const [secret, setSecret] = useState<{ name: string; key: string; secret: string } | null>(null);
  const [name, setName] = useState('');
  const show = (webhook: WebhookShape) => setSecret(webhook.secret ? { name: webhook.name, key: webhook.key, secret: webhook.secret } : null);
  return (
    <Section title="Webhooks" error={error ?? unread}>
      {secret && (
        <div role="status" className="grid grid-cols-1 gap-1 rounded-md bg-warn-soft p-3 text-sm text-warn">
          <p>Secret of {secret.name}, shown only once. Deliveries to /api/hooks/{secret.key} are signed with it.</p>
          <code className="font-mono text-xs [overflow-wrap:anywhere] text-ink select-all">{secret.secret}</code>
          <Button className="justify-self-start" onClick={() => setSecret(null)}>
            I have saved it
          </Button>
        </div>
      )}
      {answer?.webhooks.length === 0 && <p className="text-sm text-quiet">No webhooks</p>}
      <ul className="divide-y divide-line">
        {answer?.webhooks.map((hook) => (
          <li key={hook.name} className="flex flex-wrap items-center gap-x-4 gap-y-1 py-2">
            <div className="min-w-0 flex-1 basis-64">
              <p className="truncate font-mono text-sm">{hook.name}</p>
              <p className="text-xs text-quiet">
                {hook.paused ? 'paused · ' : ''}
                {hook.scheme === 'standard' ? '' : `${hook.scheme} signatures · `}
                {whereTo(hook.routing)}
              </p>
            </div>
            <div className="flex gap-1">
              <Button onClick={() => void act(async () => show(await host.client.call('POST /api/hooks/{name}/rotate', { path: { name: hook.key } })))}>
                New secret
              </Button>
              <Button onClick={() => void act(() => host.client.call('PATCH /api/hooks/{name}', { path: { name: hook.key }, body: { paused: !hook.paused } }))}>
                {hook.paused ? 'Resume' : 'Pause'}
              </Button>
              <Button
                tone="danger"
                aria-label={`Remove the webhook ${hook.name}`}
                onClick={() => void act(() => host.client.call('DELETE /api/hooks/{name}', { path: { name: hook.key } }))}
              >
                Remove
              </Button>
            </div>
          </li>
        ))}
      </ul>
      <form
        className="flex flex-wrap items-end gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          const workspace_root = host.store.get().server?.workspace_root;
          void act(async () => {
            show(await host.client.call('POST /api/hooks', { body: { name, ...(workspace_root ? { workspace_root } : {}) } }));
            setName('');
          });
        }}
      >
        <Field label="Name" value={name} placeholder="deploys" onChange={(event) => setName(event.target.value)} />
        <Button type="submit" icon="plus" disabled={!name.trim()}>
          Add a webhook
        </Button>
      </form>
    </Section>
  );
}
