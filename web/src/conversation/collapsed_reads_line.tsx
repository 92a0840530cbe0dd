/** A run of read calls in one line, which expands to the calls. */

import { useId, type ReactNode } from 'react';
import { DisclosureButton } from './disclosure_button';
import { summarizeReads, type VisiblePart } from './collapsed_reads';
import { useThreadState, useOpen } from './thread_state';
import { asTool } from './tool_part';

export function CollapsedReadsLine({ id, parts, children }: { id: string; parts: VisiblePart[]; children: (one: VisiblePart) => ReactNode }) {
  const thread = useThreadState();
  // Stay open if one of the calls was open before they were collapsed.
  const [open, setOpen] = useOpen(id, parts.some(({ part }) => thread.opened.get(`tool ${asTool(part)?.toolCallId}`)));
  const body = useId();
  return (
    <div className="my-2 min-w-0" data-reads={parts.length}>
      <DisclosureButton open={open} onChange={setOpen} controls={body} className="px-1 py-0.5 text-sm text-quiet hover:text-ink">
        {summarizeReads(parts)}
      </DisclosureButton>
      {open && <div id={body}>{parts.map(children)}</div>}
    </div>
  );
}
