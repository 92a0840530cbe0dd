/** The commands that what was typed could become. */

import { useEffect, useRef } from 'react';
import type { Command } from './commands';

interface Props {
  id: string;
  commands: Command[];
  selected: number;
  onSelect: (index: number) => void;
  onPick: (command: Command) => void;
}

export function SlashPopup({ id, commands, selected, onSelect, onPick }: Props) {
  const list = useRef<HTMLDivElement>(null);
  useEffect(() => {
    list.current?.children[selected]?.scrollIntoView({ block: 'nearest' });
  }, [selected]);
  return (
    <div
      ref={list}
      id={id}
      role="listbox"
      aria-label="Commands"
      tabIndex={0}
      className="absolute inset-x-0 bottom-full z-30 mb-1 max-h-64 overflow-auto rounded-lg border border-line bg-raised p-1 shadow-lg"
    >
      {commands.map((command, index) => (
        <div
          key={command.name}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === selected}
          onPointerMove={() => index !== selected && onSelect(index)}
          // Before the field would lose the focus.
          onPointerDown={(event) => {
            event.preventDefault();
            onPick(command);
          }}
          className={`flex cursor-pointer flex-col gap-x-3 rounded @md:flex-row @md:items-baseline px-2 py-1 text-sm ${index === selected ? 'bg-thread-soft' : ''}`}
        >
          <span className="w-40 shrink-0 font-mono">
            /{command.name} <span className="text-quiet">{command.usage}</span>
          </span>
          <span className="min-w-0 text-quiet">{command.help}</span>
        </div>
      ))}
    </div>
  );
}
