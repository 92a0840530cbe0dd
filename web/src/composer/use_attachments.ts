/** The attached files that are not sent yet. */

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
      const { accepted, refused } = admit(newest.current.map((item) => item.file), files);
      put([...newest.current, ...accepted.map((file) => ({ key: `file ${(counter += 1)}`, file }))]);
      if (files.length) conversation.notify(refused);
    },
    [conversation, put],
  );
  const remove = useCallback((key: string) => put(newest.current.filter((item) => item.key !== key)), [put]);
  /** Take all files out; `give` puts them back if sending failed. */
  const take = useCallback(() => {
    const taken = newest.current;
    put([]);
    return { files: taken.map((item) => item.file), give: () => put([...taken, ...newest.current]) };
  }, [put]);
  return { items, add, remove, take };
}
