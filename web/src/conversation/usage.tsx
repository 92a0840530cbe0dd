/** The token usage of a turn, with details on hover and focus. */

import { useLayoutEffect, useRef, useState } from 'react';
import { type Message, modelName } from '../api/types';
import { useThis } from '../state/use_conversation';
import { duration, moment, tokens } from '../ui/format';

/** Maximum height of the tooltip, in pixels. */
const MAX_HEIGHT_PX = 190;

export function Usage({ message }: { message: Message }) {
  const conversation = useThis();
  const [open, setOpen] = useState(false);
  const [below, setBelow] = useState(false);
  const around = useRef<HTMLSpanElement>(null);
  // Above the number, if there is room.
  useLayoutEffect(() => {
    const box = around.current;
    if (open && box) setBelow(box.getBoundingClientRect().top - (box.closest('[role="region"]')?.getBoundingClientRect().top ?? 0) < MAX_HEIGHT_PX);
  }, [open]);
  const { usage, model, created_at: at, turn_id: turnId } = message.metadata ?? {};
  if (!usage) return null;
  const total = usage.input + usage.output + usage.reasoning + usage.cache_read + usage.cache_write;
  const shown = `${usage.estimated ? '~' : ''}${tokens(total)} tokens`;
  const turn = open ? conversation.store.get().tree?.turns.find((candidate) => candidate.id === turnId) : undefined;
  const rows: [string, string][] = [
    ['Input', usage.input.toLocaleString('en')],
    ['Output', usage.output.toLocaleString('en')],
    ['Reasoning', usage.reasoning.toLocaleString('en')],
    ['Cache read', usage.cache_read.toLocaleString('en')],
    ['Cache write', usage.cache_write.toLocaleString('en')],
  ];
  if (usage.estimated) rows.push(['Note', 'partly estimated']);
  if (model) rows.push(['Model', modelName(model)]);
  if (turn?.settled_at) rows.push(['Duration', duration(turn.settled_at - turn.created_at)]);
  if (at) rows.push(['Time', moment(at)]);
  return (
    <span ref={around} className="relative inline-flex" onPointerEnter={() => setOpen(true)} onPointerLeave={() => setOpen(false)}>
      <button
        type="button"
        aria-label={`${shown}. ${rows.map(([name, value]) => `${name} ${value}`).join(', ')}`}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onClick={() => setOpen(true)}
        onKeyDown={(event) => event.key === 'Escape' && setOpen(false)}
        className="rounded-md px-1.5 py-1 text-xs text-quiet hover:bg-panel hover:text-ink"
      >
        {shown}
      </button>
      {open && (
        <span role="tooltip" className={`absolute left-0 z-20 grid w-max max-w-[60vw] grid-cols-[auto_auto] gap-x-4 gap-y-0.5 rounded-lg border border-line bg-raised px-3 py-2 text-xs shadow-lg ${below ? 'top-full mt-1' : 'bottom-full mb-1'}`}>
          {rows.map(([name, value]) => (
            <span key={name} className="contents">
              <span className="text-quiet">{name}</span>
              <span className="text-right break-all tabular-nums">{value}</span>
            </span>
          ))}
        </span>
      )}
    </span>
  );
}
