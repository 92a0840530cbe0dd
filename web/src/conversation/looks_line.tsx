/** A run of looks in one line, that opens to each of them. */

import { useId, type ReactNode } from 'react';
import { FoldButton } from './fold_button';
import { looksInWords, type ShownPart } from './looks';
import { useMemory, useOpen } from './memory';
import { asTool } from './tool_part';

export function LooksLine({ id, parts, children }: { id: string; parts: ShownPart[]; children: (one: ShownPart) => ReactNode }) {
  const memory = useMemory();
  // Whoever has opened one of them before they were a line is still reading it.
  const [open, setOpen] = useOpen(id, parts.some(({ part }) => memory.opened.get(`tool ${asTool(part)?.toolCallId}`)));
  const body = useId();
  return (
    <div className="my-2 min-w-0" data-looks={parts.length}>
      <FoldButton open={open} onChange={setOpen} controls={body} className="px-1 py-0.5 text-sm text-quiet hover:text-ink">
        {looksInWords(parts)}
      </FoldButton>
      {open && <div id={body}>{parts.map(children)}</div>}
    </div>
  );
}
