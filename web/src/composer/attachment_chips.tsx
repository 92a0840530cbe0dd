/** Files that go with the next message. */

import { bytes } from '../ui/words';
import type { Attachment } from './attachments';
import { Chip } from './chip';
import type { Named } from './use_named';

interface Props {
  items: Attachment[];
  onRemove: (key: string) => void;
  named: Named[];
  onTurn: (name: string, along: boolean) => void;
}

export function AttachmentChips({ items, onRemove, named, onTurn }: Props) {
  if (items.length + named.length === 0) return null;
  return (
    <ul aria-label="Attached files" className="flex flex-wrap gap-1.5 px-3 pt-2">
      {items.map(({ key, file }) => (
        <Chip key={key} icon="file" label={file.name} detail={bytes(file.size)} remove="Remove this file" onRemove={() => onRemove(key)} />
      ))}
      {named.map(({ name, along }) =>
        along ? (
          <Chip key={`@${name}`} icon="file" label={name} detail="from the folder" remove="Do not send it along" onRemove={() => onTurn(name, false)} />
        ) : (
          <li key={`@${name}`} className="inline-flex max-w-80 list-none items-center gap-1 rounded-full border border-dashed border-line ps-2.5 text-xs text-quiet">
            <bdi dir="auto" className="min-w-0 truncate" title={name}>
              {name}
            </bdi>
            <span className="shrink-0">not sent</span>
            <button type="button" aria-label={`Send it along: ${name}`} onClick={() => onTurn(name, true)} className="shrink-0 rounded-full px-2 py-1 text-ink underline hover:bg-raised pointer-coarse:min-h-11">
              Send it along
            </button>
          </li>
        ),
      )}
    </ul>
  );
}
