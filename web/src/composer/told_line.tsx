/** The answer of a command that only says something. A refusal stands above it, in its own colour. */

import { IconButton } from '../ui/button';

export function ToldLine({ words, onDismiss }: { words: string | null; onDismiss: () => void }) {
  return (
    <div role="status">
      {words && (
        <div className="mb-1.5 flex items-center gap-2 rounded-lg bg-info-soft py-1 ps-3 pe-1 text-sm text-info">
          <span dir="auto" className="min-w-0 flex-1 [overflow-wrap:anywhere]">
            {words}
          </span>
          <IconButton label="Dismiss" icon="close" className="!text-info" onClick={onDismiss} />
        </div>
      )}
    </div>
  );
}
