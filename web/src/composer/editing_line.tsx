/** Shown while the composer edits a sent message. */

import { Icon } from '../ui/icon';

export function EditingLine({ onCancel }: { onCancel: () => void }) {
  return (
    <div className="flex items-center gap-2 rounded-t-xl bg-thread-soft px-3.5 py-1 text-sm">
      <Icon name="edit" className="size-3.5" />
      <span className="min-w-0 flex-1">Editing your last message. The old version is kept.</span>
      <button type="button" onClick={onCancel} className="rounded px-1.5 underline">
        Cancel
      </button>
    </div>
  );
}
