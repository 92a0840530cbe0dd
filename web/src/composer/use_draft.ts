/** The text in the composer: stored with every keystroke, and never lost when sending fails. */

import { useCallback, useLayoutEffect, useMemo, useRef, useState } from 'react';
import type { Conversation } from '../state/conversation';
import { useStore } from '../state/store';
import { type Draft, mergeDrafts, loadDraft, saveDraft } from './draft';

/** The last offered text that was inserted; a composer that mounts again must not insert it twice. */
const inserted = new WeakMap<Conversation, number>();

export interface DraftField extends Draft {
  /** Return the current text, also between renders. */
  now: () => Draft;
  put: (draft: Draft) => void;
  /** Empty the field. Its text stays in the storage until `settled` is called, when the server has accepted or refused it. */
  detach: () => { draft: Draft; settled: () => void };
}

export function useDraft(conversation: Conversation, onOffer: (late: boolean) => void): DraftField {
  const { id } = conversation;
  const [draft, setDraft] = useState(() => loadDraft(id));
  const newest = useRef(draft);
  const sending = useRef<string[]>([]);

  const store = useCallback(() => {
    const { text, editing } = newest.current;
    saveDraft(id, { text: sending.current.reduceRight((later, sent) => mergeDrafts(sent, later), text), editing });
  }, [id]);
  const put = useCallback(
    (next: Draft) => {
      newest.current = next;
      setDraft(next);
      store();
    },
    [store],
  );
  const detach = useCallback(() => {
    const current = newest.current;
    sending.current = [...sending.current, current.text];
    put({ text: '', editing: null });
    const settled = () => {
      const at = sending.current.indexOf(current.text);
      if (at >= 0) sending.current = sending.current.toSpliced(at, 1);
      store();
    };
    return { draft: current, settled };
  }, [put, store]);

  const offered = useStore(conversation.store, (state) => state.draft);
  // In a layout effect, so that the next key is inserted after the text.
  useLayoutEffect(() => {
    if (!offered || (inserted.get(conversation) ?? 0) >= offered.seq) return;
    inserted.set(conversation, offered.seq);
    const { text, editing } = newest.current;
    if (offered.instead) {
      if (offered.instead.includes(text)) put({ text: offered.text, editing });
      return;
    }
    put({ text: mergeDrafts(offered.text, text), editing });
    onOffer(true);
    // Only a new offer matters, not new callbacks.
  }, [conversation, offered]);

  return useMemo(() => ({ ...draft, now: () => newest.current, put, detach }), [draft, put, detach]);
}
