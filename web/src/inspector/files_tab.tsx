/** The files that tools read or changed on the line. */

import { useStore } from '../state/store';
import { useAnswer } from '../state/use_answer';
import { useThis } from '../state/use_conversation';
import { inspectTurn } from '../state/view';
import { age, count } from '../ui/words';

export function FilesTab() {
  const conversation = useThis();
  const version = useStore(conversation.store, (state) => state.tree);
  const { answer, error } = useAnswer('GET /api/sessions/{id}/files', { path: { id: conversation.id } }, version);
  if (error) return <p className="p-4 text-sm text-bad">{error}</p>;
  if (!answer) return null;
  if (answer.files.length === 0) return <p className="p-4 text-sm text-quiet">No file was read or written here yet.</p>;
  return (
    <ul className="divide-y divide-line">
      {answer.files.map((file) => (
        <li key={file.path}>
          <button type="button" onClick={() => inspectTurn(file.last_turn_id)} className="grid w-full gap-0.5 px-4 py-2 text-left hover:bg-raised">
            <span dir="ltr" className="font-mono text-xs [overflow-wrap:anywhere]">
              {file.path}
            </span>
            <span className="text-xs text-quiet">
              <span className={file.modified ? 'text-warn' : ''}>{file.modified ? 'changed' : 'read'}</span> · {count(file.count, 'time')} · {age(file.last_at)}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
