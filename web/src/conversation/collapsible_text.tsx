/** Plain text, collapsed if it is long. */

import { useMemo } from 'react';
import { CopyButton } from './copy_button';
import { collapse } from './collapse';
import { useOpen } from './thread_state';

interface Props {
  /** Key of its open state in the thread. */
  id: string;
  label: string;
  text: string;
  tone?: 'plain' | 'bad';
}

export function CollapsibleText({ id, label, text, tone = 'plain' }: Props) {
  const [open, setOpen] = useOpen(id);
  const collapsed = useMemo(() => collapse(text), [text]);
  return (
    <div className="group/text relative min-w-0">
      <pre
        dir="auto"
        tabIndex={0}
        role="group"
        aria-label={label}
        className={`max-h-[70vh] overflow-auto rounded-md px-2.5 py-2 font-mono pointer-coarse:min-h-11 pointer-coarse:py-3 pointer-coarse:pr-12 text-[13px] leading-normal break-words whitespace-pre-wrap ${tone === 'bad' ? 'bg-bad-soft text-bad' : 'bg-panel'}`}
      >
        {open || !collapsed.collapsed ? text.replace(/\n+$/, '') : collapsed.shown}
      </pre>
      <CopyButton
        text={() => text}
        label={`Copy: ${label.toLowerCase()}`}
        className="absolute top-1 right-1 bg-panel opacity-0 pointer-coarse:top-0 group-focus-within/text:opacity-100 group-hover/text:opacity-100 pointer-coarse:opacity-100"
      />
      {collapsed.collapsed && (
        <button type="button" aria-expanded={open} className="mt-1 rounded px-1 text-sm text-thread underline underline-offset-2" onClick={() => setOpen(!open)}>
          {open ? 'Show less' : collapsed.lines > 1 ? `Show all ${collapsed.lines.toLocaleString('en')} lines` : 'Show all'}
        </button>
      )}
    </div>
  );
}
