/** The commands offered while a slash and a name are typed, and which of them is selected. */

import { useMemo, useState } from 'react';
import { type Command, completions } from './commands';

export function useCompletion(text: string, off: boolean) {
  const [dismissed, setDismissed] = useState<string | null>(null);
  const [chosen, setChosen] = useState<{ text: string; index: number }>({ text: '', index: 0 });
  const commands = useMemo(() => (off || dismissed === text ? [] : completions(text)), [text, off, dismissed]);
  const selected = chosen.text === text ? Math.min(chosen.index, commands.length - 1) : 0;
  const current: Command | undefined = commands[selected];
  return {
    commands,
    selected,
    current,
    select: (index: number) => setChosen({ text, index: (index + commands.length) % commands.length }),
    dismiss: () => setDismissed(text),
    /** Whether the name is whole and needs nothing more: then Enter runs it. */
    ready: current !== undefined && text.toLowerCase() === `/${current.name}` && (current.usage === '' || current.usage.startsWith('[')),
  };
}
