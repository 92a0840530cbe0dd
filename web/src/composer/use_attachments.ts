/** The files that wait to be sent. */

import { useCallback, useRef, useState } from 'react';
import type { Conversation } from '../state/conversation';
import { admit, type Attachment } from './attachments';

let counter = 0;

export function useAttachments(conversation: Conversation) {
  const [items, setItems] = useState<Attachment[]>([]);
  const newest = useRef<Attachment[]>([]);
  const put = useCallback((next: Attachment[]) => {
    newest.current = next;
    setItems(next);
  }, []);
  const add = useCallback(
    (files: readonly File[]) => {
      const { taken, refused } = admit(newest.current.map((item) => item.file), files);
      put([...newest.current, ...taken.map((file) => ({ key: `file ${(counter += 1)}`, file }))]);
      if (files.length) conversation.say(refused);
    },
    [conversation, put],
  );
  const remove = useCallback((key: string) => put(newest.current.filter((item) => item.key !== key)), [put]);
  /** Takes them all out; `give` puts back what could not be sent. */
  const take = useCallback(() => {
    const given = newest.current;
    put([]);
    return { files: given.map((item) => item.file), give: () => put([...given, ...newest.current]) };
  }, [put]);
  return { items, add, remove, take };
}
