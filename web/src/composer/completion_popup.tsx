/** The list of completions: commands, saved prompts, files. */

import { useEffect, useRef } from 'react';
import type { Completion } from './commands';

interface Props {
  id: string;
  offered: Completion[];
  selected: number;
  onSelect: (index: number) => void;
  onPick: (completion: Completion) => void;
}

export function CompletionPopup({ id, offered, selected, onSelect, onPick }: Props) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.children[selected]?.scrollIntoView({ block: 'nearest' });
  }, [selected]);
  return (
    <div
      ref={list}
      id={id}
      role="listbox"
      aria-label={offered[0]?.head.startsWith('/') ? 'Commands' : 'Files'}
      tabIndex={0}
      className="absolute inset-x-0 bottom-full z-30 mb-1 max-h-64 overflow-auto rounded-lg border border-line bg-raised p-1 shadow-lg"
    >
      {offered.map((completion, index) => (
        <div
          key={completion.key}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === selected}
          onPointerMove={() => index !== selected && onSelect(index)}
          // Before the field loses the focus.
          onPointerDown={(event) => {
            event.preventDefault();
            onPick(completion);
          }}
          className={`flex cursor-pointer flex-col gap-x-3 rounded @md:flex-row @md:items-baseline px-2 py-1 text-sm ${index === selected ? 'bg-thread-soft' : ''}`}
        >
          <span className={`font-mono ${completion.help ? 'w-40 shrink-0' : 'min-w-0 break-all'}`}>
            {completion.head} <span className="text-quiet">{completion.usage}</span>
          </span>
          {completion.help && <span className="min-w-0 truncate text-quiet">{completion.help}</span>}
        </div>
      ))}
    </div>
  );
}
