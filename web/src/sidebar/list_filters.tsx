/** Filters and grouping of the session list. Archived sessions and sidecars are hidden by default. */

import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { view } from '../state/view';
import type { GroupBy } from './session_groups';

export function ListFilters() {
  const host = useHost();
  const archived = useStore(host.store, (state) => state.archived);
  const ephemeral = useStore(host.store, (state) => state.ephemeral);
  const by = useStore(view, (state) => state.group);
  return (
    <div className="mt-1.5 flex flex-wrap items-center gap-x-3 px-3 text-xs text-quiet">
      <Toggle label="Show archived" on={archived} onChange={(on) => void host.show({ archived: on }).catch(() => undefined)} />
      <Toggle label="Show sidecars" on={ephemeral} onChange={(on) => void host.show({ ephemeral: on }).catch(() => undefined)} />
      <select
        aria-label="Group sessions"
        value={by}
        onChange={(event) => view.set({ group: event.target.value as GroupBy })}
        className="field-sizing-content rounded bg-transparent py-1 hover:text-ink"
      >
        <option value="date">By date</option>
        <option value="folder">By folder</option>
      </select>
    </div>
  );
}

function Toggle({ label, on, onChange }: { label: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <label className="flex cursor-pointer items-center gap-1.5 py-1 hover:text-ink">
      <input type="checkbox" checked={on} onChange={(event) => onChange(event.target.checked)} className="size-3.5 accent-thread" />
      {label}
    </label>
  );
}
