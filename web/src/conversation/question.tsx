/** A question of the model to the user, with options and a free-text answer. */

import { useId, useRef, useState } from 'react';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { useDraft } from './thread_state';
import { leaveByEscape, returnFocus, useRequestGuard } from './request_guard';
import type { ToolPart } from './tool_part';

export function Question({ part }: { part: ToolPart }) {
  const conversation = useThis();
  const [sending, setSending] = useState(false);
  const [own, setOwn] = useDraft(`answer ${part.toolCallId}`);
  const ref = useRef<HTMLDivElement>(null);
  const questionId = useId();
  const input = (part.input ?? {}) as { question?: unknown; options?: unknown };
  const options = Array.isArray(input.options) ? input.options.filter((option): option is string => typeof option === 'string') : [];
  const buttons = useRef<HTMLDivElement>(null);
  const { ready, guard } = useRequestGuard(buttons, part.toolCallId);

  const answer = async (text: string) => {
    const done = returnFocus(ref.current);
    setSending(true);
    try {
      await conversation.answer(part.toolCallId, text);
      done();
    } catch {
      // The notice above the composer shows the error.
    } finally {
      setSending(false);
    }
  };

  return (
    <div ref={ref} data-request={part.toolCallId} role="group" tabIndex={-1} aria-labelledby={questionId} onKeyDown={(event) => void leaveByEscape(event)} className="grid min-w-0 gap-3 rounded-sm outline-offset-[6px]">
      <p id={questionId} dir="auto" className="break-words whitespace-pre-wrap">
        {typeof input.question === 'string' ? input.question : 'The model has a question.'}
      </p>
      {options.length > 0 && (
        <div ref={buttons} {...guard} className="flex flex-wrap gap-2">
          {options.map((option, index) => (
            <Button key={index} dir="auto" disabled={sending} aria-disabled={!ready.presses || undefined} className="max-w-full text-left break-words !whitespace-normal" onClick={() => void answer(option)}>
              {option}
            </Button>
          ))}
        </div>
      )}
      <form
        className="flex flex-wrap gap-2"
        onSubmit={(event) => {
          event.preventDefault();
          if (own.trim()) void answer(own.trim());
        }}
      >
        <input
          dir="auto"
          aria-label="Your own answer"
          placeholder={options.length > 0 ? 'Or type an answer' : 'Your answer'}
          value={own}
          onChange={(event) => setOwn(event.target.value)}
          className="min-w-40 flex-1 rounded-md border border-line bg-paper px-2.5 py-1 text-sm placeholder:text-quiet"
        />
        <Button type="submit" disabled={sending || !own.trim()}>
          Answer
        </Button>
      </form>
    </div>
  );
}
