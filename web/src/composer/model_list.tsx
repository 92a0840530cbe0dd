/** The model list: a filter, the models, and the variants of the selected one. */

import { type KeyboardEvent, useEffect, useId, useMemo, useRef, useState } from 'react';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { isName, matching, splitName, variantsOf } from './model_choice';
import { ModelOption, type Option } from './model_option';

interface Props {
  shown: string;
  onPick: (name: string) => void;
  onClose: () => void;
}

export function ModelList({ shown, onPick, onClose }: Props) {
  const host = useHost();
  const models = useStore(host.store, (state) => state.models);
  const [filter, setFilter] = useState('');
  const id = useId();
  const list = useRef<HTMLDivElement>(null);
  const { base, variant } = splitName(shown);
  const options = useMemo<Option[]>(() => {
    const listed = matching(models, filter).map((listing) => ({ name: listing.id, listing, usable: listing.usable }));
    const typed = filter.trim();
    const free = isName(typed) && !models.some((model) => model.id === typed);
    return free ? [...listed, { name: typed, listing: null, usable: true }] : listed;
  }, [models, filter]);
  const usable = options.filter((option) => option.usable);
  const [selected, setSelected] = useState<string | null>(base);
  const at = Math.max(0, usable.findIndex((option) => option.name === selected));
  const current = usable[at];

  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: 'nearest' });
  }, [current?.name]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.nativeEvent.isComposing) return;
    const step = { ArrowDown: at + 1, ArrowUp: at - 1, PageDown: at + 8, PageUp: at - 8 }[event.key];
    if (step !== undefined) setSelected(usable[Math.max(0, Math.min(step, usable.length - 1))]?.name ?? null);
    else if (event.key === 'Enter' && current) onPick(current.name);
    else if (event.key !== 'Enter') return;
    event.preventDefault();
  };

  return (
    <div
      role="dialog"
      aria-label="Model for the next message"
      onKeyDown={(event) => {
        if (event.key !== 'Escape') return;
        event.preventDefault();
        event.stopPropagation();
        onClose();
      }}
      className="absolute bottom-full left-0 z-30 mb-1 flex max-h-[min(26rem,60dvh)] w-[min(26rem,100%)] flex-col gap-1 rounded-lg border border-line bg-raised p-2 shadow-lg"
    >
      <input
        autoFocus
        role="combobox"
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={current ? `${id}-${options.indexOf(current)}` : undefined}
        aria-label="Find a model"
        placeholder="Find, or type provider/model:variant"
        autoComplete="off"
        spellCheck={false}
        value={filter}
        onChange={(event) => setFilter(event.target.value)}
        onKeyDown={onKeyDown}
        className="rounded-md border border-line bg-paper px-2.5 py-1.5 text-sm placeholder:text-quiet"
      />
      <div ref={list} id={`${id}-list`} role="listbox" aria-label="Models" tabIndex={-1} className="min-h-0 flex-1 overflow-auto">
        {options.map((option, index) => (
          <ModelOption
            key={option.name}
            id={`${id}-${index}`}
            option={option}
            selected={option === current}
            chosen={option.name === base}
            onSelect={() => setSelected(option.name)}
            onPick={() => onPick(option.name)}
          />
        ))}
      </div>
      {options.length === 0 && <p className="px-2 pb-1 text-sm text-quiet">No matching model. You can type a full provider/model name.</p>}
      {base && (
        <div role="group" aria-label={`Variant of ${base}`} className="flex flex-wrap items-center gap-1 border-t border-line pt-2 text-xs">
          <span className="me-1 text-quiet">Variant (for one turn)</span>
          {[null, ...variantsOf(base, models)].map((name) => (
            <button
              key={name ?? 'default'}
              type="button"
              aria-pressed={name === variant}
              onClick={() => onPick(name ? `${base}:${name}` : base)}
              className={`rounded-full border px-2 py-0.5 ${name === variant ? 'border-thread bg-thread-soft text-ink' : 'border-line text-quiet hover:text-ink'}`}
            >
              {name ?? 'default'}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
