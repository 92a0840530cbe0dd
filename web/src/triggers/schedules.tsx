/** Schedules: when they fire, what they say, and the way to make one. */

import { useState } from 'react';
import type { Schedule } from '../api/schema';
import { useHost } from '../state/host';
import { useAnswer } from '../state/use_answer';
import { Button } from '../ui/button';
import { Field } from './field';
import { Section } from './section';
import { useActing } from './use_acting';
import { nextFire, whereTo } from './words';

export function Schedules() {
  const host = useHost();
  const { version, error, act } = useActing();
  const { answer, error: unread } = useAnswer('GET /api/schedules', {}, version);
  return (
    <Section title="Schedules" error={error ?? unread}>
      {answer?.schedules.length === 0 && <p className="text-sm text-quiet">None yet.</p>}
      <ul className="divide-y divide-line">
        {answer?.schedules.map((schedule) => (
          <li key={schedule.id} className="flex flex-wrap items-center gap-x-4 gap-y-1 py-2">
            <Told schedule={schedule} />
            <div className="flex gap-1">
              <Button onClick={() => void act(() => host.client.call('POST /api/schedules/{id}/run', { path: { id: schedule.id } }))}>Run now</Button>
              <Button
                onClick={() =>
                  void act(() => host.client.call('PATCH /api/schedules/{id}', { path: { id: schedule.id }, body: { paused: !schedule.paused } }))
                }
              >
                {schedule.paused ? 'Resume' : 'Pause'}
              </Button>
              <Button
                look="danger"
                aria-label={`Remove the schedule ${schedule.name ?? schedule.prompt}`}
                onClick={() => void act(() => host.client.call('DELETE /api/schedules/{id}', { path: { id: schedule.id } }))}
              >
                Remove
              </Button>
            </div>
          </li>
        ))}
      </ul>
      <NewSchedule
        onAdd={(cron, prompt, timezone) => {
          const workspace_root = host.store.get().server?.workspace_root;
          return act(() =>
            host.client.call('POST /api/schedules', { body: { cron, prompt, timezone, ...(workspace_root ? { workspace_root } : {}) } }),
          );
        }}
      />
    </Section>
  );
}

function Told({ schedule }: { schedule: Schedule }) {
  return (
    <div className="min-w-0 flex-1 basis-64">
      <p dir="auto" className="truncate text-sm" title={schedule.prompt}>
        {schedule.name ?? schedule.prompt}
      </p>
      <p className="text-xs text-quiet">
        <span className="font-mono">{schedule.cron || 'once'}</span> {schedule.timezone} · {nextFire(schedule)} · {whereTo(schedule.routing)}
        {schedule.by === 'agent' ? ' · by the agent' : ''}
        {schedule.skipped ? ` · ${schedule.skipped} skipped` : ''}
      </p>
      {schedule.last_error && <p className="text-xs break-words text-bad">{schedule.last_error}</p>}
    </div>
  );
}

function NewSchedule({ onAdd }: { onAdd: (cron: string, prompt: string, timezone: string) => Promise<boolean> }) {
  const [cron, setCron] = useState('');
  const [prompt, setPrompt] = useState('');
  const [timezone, setTimezone] = useState(() => Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC');
  return (
    <form
      className="flex flex-wrap items-end gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        void onAdd(cron, prompt, timezone).then((added) => {
          if (!added) return;
          setCron('');
          setPrompt('');
        });
      }}
    >
      <Field label="When" value={cron} placeholder="0 9 * * 1-5" hint="minute, hour, day, month, weekday" onChange={(event) => setCron(event.target.value)} />
      <Field label="Time zone" value={timezone} onChange={(event) => setTimezone(event.target.value)} />
      <Field label="What to say" value={prompt} dir="auto" onChange={(event) => setPrompt(event.target.value)} />
      <Button type="submit" icon="plus" disabled={!cron.trim() || !prompt.trim()}>
        Add a schedule
      </Button>
    </form>
  );
}
