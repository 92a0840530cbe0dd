/** Schedules: list and add. */

import { useState } from 'react';
import type { Schedule } from '@clew/client';
import { useHost } from '../state/host';
import { useQuery } from '../state/use_answer';
import { Button } from '../ui/button';
import { moment } from '../ui/format';
import { Field, Select } from './field';
import { Section } from './section';
import { cronOf, describeCron, INTERVALS, FREQUENCIES, DEFAULT_WHEN, WEEKDAYS, type When } from './times';
import { useAction } from './use_action';
import { nextFire, whereTo } from './labels';

export function Schedules() {
  const host = useHost();
  const { version, error, act } = useAction();
  const { answer, error: unread } = useQuery('GET /api/schedules', {}, version);
  return (
    <Section title="Schedules" error={error ?? unread}>
      {answer?.schedules.length === 0 && <p className="text-sm text-quiet">No schedules</p>}
      <ul className="divide-y divide-line">
        {answer?.schedules.map((schedule) => (
          <li key={schedule.id} className="flex flex-wrap items-center gap-x-4 gap-y-1 py-2">
            <Details schedule={schedule} />
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
                tone="danger"
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

function Details({ schedule }: { schedule: Schedule }) {
  return (
    <div className="min-w-0 flex-1 basis-64">
      <p dir="auto" className="truncate text-sm" title={schedule.prompt}>
        {schedule.name ?? schedule.prompt}
      </p>
      <p className="text-xs text-quiet">
        {schedule.watches ? (
          `when ${schedule.watches.uri} of ${schedule.watches.server} changes`
        ) : (
          <>
            <span title={schedule.cron || undefined}>{schedule.cron ? describeCron(schedule.cron) : 'once'}</span> in {schedule.timezone} · {nextFire(schedule)}
          </>
        )}{' '}
        · {whereTo(schedule.routing)}
        {schedule.by === 'agent' ? ' · created by the agent' : ''}
        {schedule.skipped ? ` · ${schedule.skipped} skipped` : ''}
      </p>
      {schedule.last_error && <p className="text-xs break-words text-bad">{schedule.last_error}</p>}
    </div>
  );
}

function NewSchedule({ onAdd }: { onAdd: (cron: string, prompt: string, timezone: string) => Promise<boolean> }) {
  const [when, setWhen] = useState(DEFAULT_WHEN);
  const [prompt, setPrompt] = useState('');
  const [timezone, setTimezone] = useState(() => Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC');
  const put = (change: Partial<When>) => setWhen((before) => ({ ...before, ...change }));
  const cron = cronOf(when);
  const clock = when.frequency !== 'minutes' && when.frequency !== 'cron';
  return (
    <form
      aria-label="Add a schedule"
      className="grid gap-2"
      onSubmit={(event) => {
        event.preventDefault();
        void onAdd(cron, prompt, timezone).then((added) => added && setPrompt(''));
      }}
    >
      <div className="flex flex-wrap items-end gap-2">
        <Select label="How often" value={when.frequency} options={FREQUENCIES} onChange={(frequency) => put({ frequency: frequency as When['frequency'] })} />
        {when.frequency === 'minutes' && (
          <Select label="Minutes apart" value={String(when.minutes)} options={INTERVALS.map((every): [string, string] => [String(every), String(every)])} onChange={(minutes) => put({ minutes: Number(minutes) })} />
        )}
        {when.frequency === 'weekly' && (
          <Select label="On" value={String(when.weekday)} options={WEEKDAYS.map((day, index): [string, string] => [String(index), day])} onChange={(day) => put({ weekday: Number(day) })} />
        )}
        {clock && <Field label={when.frequency === 'hourly' ? 'At the minute of' : 'At'} type="time" required value={when.at} onChange={(event) => put({ at: event.target.value })} />}
        {when.frequency === 'cron' && (
          <Field label="When" value={when.cron} placeholder="0 9 * * 1-5" hint="minute, hour, day, month, weekday" onChange={(event) => put({ cron: event.target.value })} />
        )}
        <Field label="Time zone" value={timezone} onChange={(event) => setTimezone(event.target.value)} />
      </div>
      <NextTimes cron={cron} timezone={timezone.trim()} />
      <div className="flex flex-wrap items-end gap-2">
        <Field label="Message" value={prompt} dir="auto" onChange={(event) => setPrompt(event.target.value)} />
        <Button type="submit" icon="plus" disabled={!cron || !prompt.trim()}>
          Add a schedule
        </Button>
      </div>
    </form>
  );
}

/** A preview of the next times, computed by the server and shown in this browser's time zone. */
function NextTimes({ cron, timezone }: { cron: string; timezone: string }) {
  const { answer } = useQuery('GET /api/schedules/preview', cron && timezone ? { query: { cron, timezone } } : null);
  const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return (
    <p role="status" className="text-xs text-quiet">
      {answer?.problem ?? (answer && (answer.times.length ? `Next: ${answer.times.map(moment).join('; ')}${own ? ` (${own} time)` : ''}` : 'This schedule never fires.'))}
    </p>
  );
}
