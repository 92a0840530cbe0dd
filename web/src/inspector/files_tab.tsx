/** The files that tools read or changed on the line, a stretch of turns at a time. */

import { useEffect, useState } from 'react';
import { inWords } from '../api/problem';
import type { TouchedFile } from '../api/types';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { inspectTurn } from '../state/view';
import { Button } from '../ui/button';
import { age, count } from '../ui/words';
import { joinFiles } from './joined_files';

/** Turns that are looked at with each step back. */
const STRETCH = 200;

export function FilesTab() {
  const conversation = useThis();
  const { client } = useHost();
  const version = useStore(conversation.store, (state) => state.tree);
  const [stretches, setStretches] = useState(1);
  const [{ files, older, error }, setFound] = useState<{ files: TouchedFile[] | null; older: boolean; error: string | null }>({ files: null, older: false, error: null });
  useEffect(() => {
    const { signal, abort } = ((controller) => ({ signal: controller.signal, abort: () => controller.abort() }))(new AbortController());
    const read = async () => {
      let found: TouchedFile[] = [];
      let cursor: string | null = null;
      for (let n = 0; n < stretches; n += 1) {
        const page: { files: TouchedFile[]; next_cursor?: string | null } = await client.call('GET /api/sessions/{id}/files', {
          path: { id: conversation.id },
          query: { limit: STRETCH, ...(cursor !== null && { cursor }) },
          signal,
        });
        found = joinFiles(found, page.files);
        cursor = page.next_cursor ?? null;
        if (cursor === null) break;
      }
      setFound({ files: found, older: cursor !== null, error: null });
    };
    read().catch((problem: unknown) => {
      if (!signal.aborted) setFound({ files: null, older: false, error: inWords(problem) });
    });
    return abort;
  }, [client, conversation, version, stretches]);
  if (error) return <p className="p-4 text-sm text-bad">{error}</p>;
  if (!files) return null;
  return (
    <>
      {files.length === 0 && <p className="p-4 text-sm text-quiet">{older ? 'No file was read or written lately.' : 'No file was read or written here yet.'}</p>}
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
        <Button look="quiet" className="px-4 py-2 text-sm underline" onClick={() => setStretches(stretches + 1)}>
          Look further back
        </Button>
      )}
    </>
  );
}
