/** The actions of the top bar, and the one in progress. */

import { useCallback, useMemo, useState } from 'react';
import { errorText } from '../api/problem';
import { useHost } from '../state/host';
import { useThis } from '../state/use_conversation';
import { download, type Format } from './export';
import { openSidecar } from './sidecar';

export type ActionName = 'compact' | 'prune' | 'sidecar' | 'export';

export function useActions() {
  const conversation = useThis();
  const { client } = useHost();
  const [inProgress, setInProgress] = useState<ActionName | null>(null);
  const during = useCallback(
    async (what: ActionName, act: () => Promise<void>) => {
      setInProgress(what);
      // Errors are shown by the conversation.
      await act().catch(() => undefined);
      setInProgress(null);
    },
    [],
  );
  return useMemo(
    () => ({
      inProgress,
      compact: () => void during('compact', () => conversation.compact()),
      prune: () => void during('prune', () => conversation.prune()),
      sidecar: () => void during('sidecar', () => openSidecar(conversation)),
      save: (format: Format) =>
        void during('export', () =>
          download(client, conversation.id, () => conversation.store.get().session?.title ?? null, format).catch((error: unknown) => conversation.notify(`${errorText(error)}.`)),
        ),
    }),
    [conversation, client, inProgress, during],
  );
}
