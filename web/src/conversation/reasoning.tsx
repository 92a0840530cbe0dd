/** The reasoning of a model: one line that expands. */

import { useEffect, useId, useRef, useState } from 'react';
import { duration } from '../ui/format';
import { DisclosureButton } from './disclosure_button';
import { Markdown } from './markdown';
import { useOpen } from './thread_state';

export function Reasoning({ id, text, thinking }: { id: string; text: string; thinking: boolean }) {
  const [open, setOpen] = useOpen(id);
  const durationMs = useDuration(thinking);
  const body = useId();
  if (text.trim() === '' && !thinking) return null;
  const line = thinking ? 'Thinking…' : durationMs === null ? 'Thought' : `Thought for ${durationMs < 1000 ? 'a moment' : duration(durationMs)}`;
  return (
    <div className="my-1.5">
      <DisclosureButton open={open} onChange={setOpen} controls={body} className="text-sm text-quiet hover:text-ink">
        <span className={thinking ? 'clew-breath' : ''}>{line}</span>
      </DisclosureButton>
      {open && (
        <div id={body} className="mt-1 ml-1.5 border-l-2 border-line pl-3.5 text-sm text-quiet">
          <Markdown text={text} streaming={thinking} />
        </div>
      )}
    </div>
  );
}

/** Return the duration, if the page saw the start and the end. */
function useDuration(thinking: boolean): number | null {
  const since = useRef<number | null>(null);
  const [durationMs, setDurationMs] = useState<number | null>(null);
  useEffect(() => {
    if (thinking) {
      since.current ??= performance.now();
    } else if (since.current !== null) {
      setDurationMs(performance.now() - since.current);
      since.current = null;
    }
  }, [thinking]);
  return durationMs;
}
