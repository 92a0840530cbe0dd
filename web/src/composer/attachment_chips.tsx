/** Files attached to the next message. */

import { bytes } from '../ui/format';
import type { Attachment } from './attachments';
import { Chip } from './chip';
import type { Mention } from './use_mentions';

interface Props {
  items: Attachment[];
  onRemove: (key: string) => void;
  mentions: Mention[];
  onToggle: (name: string, attached: boolean) => void;
}

export function AttachmentChips({ items, onRemove, mentions, onToggle }: Props) {
  if (items.length + mentions.length === 0) return null;
  return (
    <ul aria-label="Attached files" className="flex flex-wrap gap-1.5 px-3 pt-2">
      {items.map(({ key, file }) => (
        <Chip key={key} icon="file" label={file.name} detail={bytes(file.size)} remove="Remove this file" onRemove={() => onRemove(key)} />
      ))}
      {mentions.map(({ name, attached }) =>
        attached ? (
          <Chip key={`@${name}`} icon="file" label={name} detail="from the workspace" remove="Don’t attach this file" onRemove={() => onToggle(name, false)} />
        ) : (
          <li key={`@${name}`} className="inline-flex max-w-80 list-none items-center gap-1 rounded-full border border-dashed border-line ps-2.5 text-xs text-quiet">
            <bdi dir="auto" className="min-w-0 truncate" title={name}>
              {name}
            </bdi>
            <span className="shrink-0">not attached</span>
            <button type="button" aria-label={`Attach: ${name}`} onClick={() => onToggle(name, true)} className="shrink-0 rounded-full px-2 py-1 text-ink underline hover:bg-raised pointer-coarse:min-h-11">
              Attach
            </button>
          </li>
        ),
      )}
    </ul>
  );
}
