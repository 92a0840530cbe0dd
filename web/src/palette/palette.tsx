/** The palette: everything in one searchable list. Arrows move, Enter runs, Esc closes. */

import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from 'react';
import { flushSync } from 'react-dom';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useSearch } from '../sidebar/use_search';
import { Dialog } from '../ui/dialog';
import { Icon } from '../ui/icon';
import { count } from '../ui/format';
import { type Entry, groupsFor } from './entries';

export function Palette({ onClose }: { onClose: () => void }) {
  const host = useHost();
  const state = useStore(host.store, (known) => known);
  const [typed, setTyped] = useState('');
  const { found, searching } = useSearch(typed);
  const groups = useMemo(() => groupsFor(typed, state, found), [typed, state, found]);
  const entries = groups.flatMap((group) => group.entries);
  const [chosen, setChosen] = useState<{ typed: string; key: string } | null>(null);
  // The selection stays while more results arrive; new text selects the best match.
  const at = Math.max(0, chosen?.typed === typed ? entries.findIndex((entry) => entry.key === chosen.key) : 0);
  const current = entries[at];
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' });
  }, [current?.key]);
  const pick = (entry: Entry) => {
    // Close first, which restores the focus: the entry may move it.
    flushSync(onClose);
    entry.act();
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const step = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 8, PageUp: at - 8 }[event.key];
    if (step !== undefined && entries.length > 0) {
      const next = event.key.startsWith('Page') ? Math.max(0, Math.min(step, entries.length - 1)) : (step + entries.length) % entries.length;
      setChosen({ typed, key: entries[next]!.key });
    } else if (event.key === 'Enter' && current) pick(current);
    else if (event.key !== 'Enter') return;
    event.preventDefault();
  };
  const nothing = entries.length === 0;
  return (
    <Dialog
      title="Search or run a command"
      onClose={onClose}
      head={
        <input
          autoFocus
          role="combobox"
          aria-expanded="true"
          aria-controls={`${id}-list`}
          aria-activedescendant={current ? `${id}-${at}` : undefined}
          aria-label="Search sessions, commands, models and messages"
          placeholder="Search sessions, commands, models, messages"
          autoComplete="off"
          spellCheck={false}
          dir="auto"
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
          onKeyDown={onKeyDown}
          className="min-w-0 flex-1 bg-transparent py-1 placeholder:text-quiet focus-visible:outline-none"
        />
      }
    >
      <p role="status" className={nothing ? 'px-2 py-3 text-sm text-quiet' : 'sr-only'}>
        {nothing ? (searching ? 'Searching…' : 'No results') : count(entries.length, 'result')}
      </p>
      <div ref={list} id={`${id}-list`} role="listbox" aria-label="Results" tabIndex={-1} className="-m-2 grid grid-cols-1 h-[min(28rem,60dvh)] content-start gap-2 overflow-auto">
        {groups.map((group) => (
          <div key={group.name} role="group" aria-labelledby={`${id}-${group.name}`}>
            <div id={`${id}-${group.name}`} role="presentation" className="px-2 pb-0.5 text-xs font-medium text-quiet">
              {group.name}
            </div>
            {group.entries.map((entry) => {
              const index = entries.indexOf(entry);
              return (
                <div
                  key={entry.key}
                  id={`${id}-${index}`}
                  role="option"
                  aria-selected={index === at}
                  onPointerMove={() => index !== at && setChosen({ typed, key: entry.key })}
                  onPointerDown={(event) => {
                    event.preventDefault();
                    pick(entry);
                  }}
                  className={`flex cursor-pointer items-center gap-2 rounded px-2 py-1 text-sm pointer-coarse:min-h-11 ${index === at ? 'bg-thread-soft' : ''}`}
                >
                  <Icon name={entry.icon} className="size-4 text-quiet" />
                  <bdi dir="auto" className="min-w-0 flex-1 truncate">
                    {entry.label}
                  </bdi>
                  <span className="max-w-40 shrink-0 truncate text-xs text-quiet max-sm:max-w-24 pointer-coarse:hidden">{entry.note}</span>
                </div>
              );
            })}
          </div>
        ))}
      </div>
    </Dialog>
  );
}
