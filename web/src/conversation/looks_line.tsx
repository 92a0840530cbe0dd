/** A run of looks in one line, that opens to each of them. */

import { useId, type ReactNode } from 'react';
import { FoldButton } from './fold_button';
import { looksInWords, type ShownPart } from './looks';
import { useOpen } from './memory';

export function LooksLine({ id, parts, children }: { id: string; parts: ShownPart[]; children: (one: ShownPart) => ReactNode }) {
  const [open, setOpen] = useOpen(id);
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
