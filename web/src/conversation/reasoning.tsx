/** What a model thought before it spoke: one line that opens. */

import { useEffect, useId, useRef, useState } from 'react';
import { duration } from '../ui/words';
import { FoldButton } from './fold_button';
import { Markdown } from './markdown';
import { useOpen } from './memory';

export function Reasoning({ id, text, thinking }: { id: string; text: string; thinking: boolean }) {
  const [open, setOpen] = useOpen(id);
  const took = useTook(thinking);
  const body = useId();
  if (text.trim() === '' && !thinking) return null;
  const line = thinking ? 'Thinking…' : took === null ? 'Thought' : `Thought for ${took < 1000 ? 'a moment' : duration(took)}`;
  return (
    <div className="my-1.5">
      <FoldButton open={open} onChange={setOpen} controls={body} className="text-sm text-quiet hover:text-ink">
        <span className={thinking ? 'clew-breath' : ''}>{line}</span>
      </FoldButton>
      {open && (
        <div id={body} className="mt-1 ml-1.5 border-l-2 border-line pl-3.5 text-sm text-quiet">
          <Markdown text={text} streaming={thinking} />
        </div>
      )}
    </div>
  );
}

/** How long it took, if the page saw it begin and end. */
function useTook(thinking: boolean): number | null {
  const since = useRef<number | null>(null);
  const [took, setTook] = useState<number | null>(null);
  useEffect(() => {
    if (thinking) {
      since.current ??= performance.now();
    } else if (since.current !== null) {
      setTook(performance.now() - since.current);
      since.current = null;
    }
  }, [thinking]);
  return took;
}
