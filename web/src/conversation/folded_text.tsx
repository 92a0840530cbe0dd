/** Text as it is, never as HTML; a long one folded, with the number of its lines. */

import { useMemo } from 'react';
import { CopyButton } from './copy_button';
import { fold } from './fold';
import { useOpen } from './memory';

interface Props {
  /** Names it in the thread's memory. */
  id: string;
  label: string;
  text: string;
  tone?: 'plain' | 'bad';
}

export function FoldedText({ id, label, text, tone = 'plain' }: Props) {
  const [open, setOpen] = useOpen(id);
  const folded = useMemo(() => fold(text), [text]);
  return (
    <div className="group/text relative min-w-0">
      <pre
        dir="auto"
        tabIndex={0}
        role="group"
        aria-label={label}
        className={`max-h-[70vh] overflow-auto rounded-md px-2.5 py-2 font-mono pointer-coarse:min-h-11 pointer-coarse:py-3 pointer-coarse:pr-12 text-[13px] leading-normal break-words whitespace-pre-wrap ${tone === 'bad' ? 'bg-bad-soft text-bad' : 'bg-panel'}`}
      >
        {open || !folded.folded ? text.replace(/\n+$/, '') : folded.shown}
      </pre>
      <CopyButton
        text={() => text}
        label={`Copy: ${label.toLowerCase()}`}
        className="absolute top-1 right-1 bg-panel opacity-0 pointer-coarse:top-0 group-focus-within/text:opacity-100 group-hover/text:opacity-100 pointer-coarse:opacity-100"
      />
      {folded.folded && (
        <button type="button" aria-expanded={open} className="mt-1 rounded px-1 text-sm text-thread underline underline-offset-2" onClick={() => setOpen(!open)}>
          {open ? 'Show less' : folded.lines > 1 ? `Show all ${folded.lines.toLocaleString('en')} lines` : 'Show all of it'}
        </button>
      )}
    </div>
  );
}
