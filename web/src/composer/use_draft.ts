/** The text in the composer: kept with every keystroke, and never lost to a send that fails. */

import { useCallback, useLayoutEffect, useMemo, useRef, useState } from 'react';
import type { Conversation } from '../state/conversation';
import { useStore } from '../state/store';
import { type Draft, joinDrafts, loadDraft, saveDraft } from './draft';

/** Which offered text was put in already; a composer that is drawn anew must not take it twice. */
const taken = new WeakMap<Conversation, number>();

export interface DraftField extends Draft {
  /** What is in the field at this moment, also between two drawings. */
  now: () => Draft;
  put: (draft: Draft) => void;
  /** Empties the field. What was in it stays in the storage until the answer is called: the server has it, or not. */
  hand: () => { draft: Draft; settled: () => void };
}

export function useDraft(conversation: Conversation, onOffer: (late: boolean) => void): DraftField {
  const { id } = conversation;
  const [draft, setDraft] = useState(() => loadDraft(id));
  const newest = useRef(draft);
  const underWay = useRef<string[]>([]);

  const keep = useCallback(() => {
    const { text, editing } = newest.current;
    saveDraft(id, { text: underWay.current.reduceRight((later, sent) => joinDrafts(sent, later), text), editing });
  }, [id]);
  const put = useCallback(
    (next: Draft) => {
      newest.current = next;
      setDraft(next);
      keep();
    },
    [keep],
  );
  const hand = useCallback(() => {
    const given = newest.current;
    underWay.current = [...underWay.current, given.text];
    put({ text: '', editing: null });
    const settled = () => {
      const at = underWay.current.indexOf(given.text);
      if (at >= 0) underWay.current = underWay.current.toSpliced(at, 1);
      keep();
    };
    return { draft: given, settled };
  }, [put, keep]);

  const offered = useStore(conversation.store, (state) => state.draft);
  // Before the next key: who types on types behind it.
  useLayoutEffect(() => {
    if (!offered || (taken.get(conversation) ?? 0) >= offered.asked) return;
    taken.set(conversation, offered.asked);
    const { text, editing } = newest.current;
    if (offered.instead) {
      if (offered.instead.includes(text)) put({ text: offered.text, editing });
      return;
    }
    put({ text: joinDrafts(offered.text, text), editing });
    onOffer(true);
    // Only a new offer counts, not a new way of taking it.
  }, [conversation, offered]);

  return useMemo(() => ({ ...draft, now: () => newest.current, put, hand }), [draft, put, hand]);
}
