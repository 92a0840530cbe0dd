/** The files that tools read or changed in the conversation, loaded for a range of turns at a time. */

import { useEffect, useState } from 'react';
import { errorText } from '../api/problem';
import type { TouchedFile } from '../api/types';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { inspectTurn } from '../state/view';
import { Button } from '../ui/button';
import { age, count } from '../ui/format';
import { mergeFiles } from './merge_files';

/** Turns per page. */
const PAGE = 200;

export function FilesTab() {
  const conversation = useThis();
  const { client } = useHost();
  const version = useStore(conversation.store, (state) => state.tree);
  const [pages, setPages] = useState(1);
  const [{ files, older, error }, setFound] = useState<{ files: TouchedFile[] | null; older: boolean; error: string | null }>({ files: null, older: false, error: null });
  useEffect(() => {
    const { signal, abort } = ((controller) => ({ signal: controller.signal, abort: () => controller.abort() }))(new AbortController());
    const read = async () => {
      let found: TouchedFile[] = [];
      let cursor: string | null = null;
      for (let n = 0; n < pages; n += 1) {
        const page: { files: TouchedFile[]; next_cursor?: string | null } = await client.call('GET /api/sessions/{id}/files', {
          path: { id: conversation.id },
          query: { limit: PAGE, ...(cursor !== null && { cursor }) },
          signal,
        });
        found = mergeFiles(found, page.files);
        cursor = page.next_cursor ?? null;
        if (cursor === null) break;
      }
      setFound({ files: found, older: cursor !== null, error: null });
    };
    read().catch((problem: unknown) => {
      if (!signal.aborted) setFound({ files: null, older: false, error: errorText(problem) });
    });
    return abort;
  }, [client, conversation, version, pages]);
  if (error) return <p className="p-4 text-sm text-bad">{error}</p>;
  if (!files) return null;
  return (
    <>
      {files.length === 0 && <p className="p-4 text-sm text-quiet">{older ? 'No files read or written recently.' : 'No files read or written yet.'}</p>}
      <ul className="divide-y divide-line">
        {files.map((file) => (
          <li key={file.path}>
            <button type="button" onClick={() => inspectTurn(file.last_turn_id)} className="grid w-full gap-0.5 px-4 py-2 text-left hover:bg-raised">
              <span dir="ltr" className="font-mono text-xs [overflow-wrap:anywhere]">
                {file.path}
              </span>
              <span className="text-xs text-quiet">
                {file.changes > 0 && <span className="text-warn">changed {count(file.changes, 'time')} · </span>}
                {file.count > file.changes && `read ${count(file.count - file.changes, 'time')} · `}
                {age(file.last_at)}
              </span>
            </button>
          </li>
        ))}
      </ul>
      {older && (
        <Button tone="quiet" className="px-4 py-2 text-sm underline" onClick={() => setPages(pages + 1)}>
          Load older
        </Button>
      )}
    </>
  );
}
