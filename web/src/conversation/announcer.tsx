/** Says to a screen reader what changed by itself: once a turn, never word by word. */

import { useEffect, useRef, useState } from 'react';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { requestName } from './approval_words';

export function Announcer({ busy }: { busy: boolean }) {
  const conversation = useThis();
  const waiting = useStore(conversation.store, (state) => state.status.waiting?.[0]?.tool ?? null);
  const [words, setWords] = useState('');
  const before = useRef(busy);
  useEffect(() => {
    if (waiting !== null) setWords(waiting === 'question' ? 'The model asks you something' : requestName(waiting));
    else if (busy) setWords('Answering');
    else if (before.current) setWords('The answer is complete');
    before.current = busy;
  }, [busy, waiting]);
  return (
    <div role="status" className="sr-only">
      {words}
    </div>
  );
}
