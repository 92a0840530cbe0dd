/** Files that go with the next message. */

import { bytes } from '../ui/words';
import type { Attachment } from './attachments';
import { Chip } from './chip';

export function AttachmentChips({ items, onRemove }: { items: Attachment[]; onRemove: (key: string) => void }) {
  if (items.length === 0) return null;
  return (
    <ul aria-label="Attached files" className="flex flex-wrap gap-1.5 px-3 pt-2">
      {items.map(({ key, file }) => (
        <Chip key={key} icon="file" label={file.name} detail={bytes(file.size)} remove="Remove this file" onRemove={() => onRemove(key)} />
      ))}
    </ul>
  );
}
