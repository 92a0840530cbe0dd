/** Answers all pending approvals at once, shown at the last one if there are several. */

import { useRef, useState } from 'react';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Button } from '../ui/button';
import { useRequestGuard } from './request_guard';

export function AllowAll({ toolCallId }: { toolCallId: string }) {
  const conversation = useThis();
  const waiting = useStore(conversation.store, (state) => state.status.waiting)?.filter((wait) => wait.approval_id) ?? [];
  // Answer only the requests counted on the button, not one that arrives while it is pressed.
  const seen = waiting.flatMap((wait) => wait.approval_id ?? []);
  const count = waiting.at(-1)?.tool_call_id === toolCallId ? waiting.length : 0;
  const [sending, setSending] = useState(false);
  const buttons = useRef<HTMLSpanElement>(null);
  const { ready, guard } = useRequestGuard(buttons, seen.join());
  if (count < 2) return null;
  const decide = (decision: 'once' | 'deny') => {
    setSending(true);
    // The notice above the composer shows errors.
    void conversation.decideAll(decision, seen).catch(() => undefined).finally(() => setSending(false));
  };
  return (
    <span ref={buttons} {...guard} className="ms-auto flex flex-wrap gap-2">
      <Button tone="quiet" disabled={sending} aria-disabled={!ready.presses || undefined} onClick={() => decide('once')}>
        Allow all {count} once
      </Button>
      <Button tone="quiet" disabled={sending} aria-disabled={!ready.presses || undefined} onClick={() => decide('deny')}>
        Deny all {count}
      </Button>
    </span>
  );
}
