/** Announces changes to screen readers, once per turn. */

import { useEffect, useRef, useState } from 'react';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { requestTitle } from './approval_labels';

export function Announcer({ busy }: { busy: boolean }) {
  const conversation = useThis();
  const waiting = useStore(conversation.store, (state) => state.status.waiting?.[0]?.tool ?? null);
  const [text, setText] = useState('');
  const before = useRef(busy);
  useEffect(() => {
    if (waiting !== null) setText(waiting === 'question' ? 'The model asks you something' : requestTitle(waiting));
    else if (busy) setText('Answering');
    else if (before.current) setText('The answer is complete');
    before.current = busy;
  }, [busy, waiting]);
  return (
    <div role="status" className="sr-only">
      {text}
    </div>
  );
}
