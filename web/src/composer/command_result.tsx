/** The result of a command. Errors are shown in the notice above. */

import { IconButton } from '../ui/button';

export function CommandResult({ text, onDismiss }: { text: string | null; onDismiss: () => void }) {
  return (
    <div role="status">
      {text && (
        <div className="mb-1.5 flex items-center gap-2 rounded-lg bg-info-soft py-1 ps-3 pe-1 text-sm text-info">
          <span dir="auto" className="min-w-0 flex-1 [overflow-wrap:anywhere]">
            {text}
          </span>
          <IconButton label="Dismiss" icon="close" className="!text-info" onClick={onDismiss} />
        </div>
      )}
    </div>
  );
}
