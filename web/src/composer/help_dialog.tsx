/** The list of all commands and keys. */

import { Dialog } from '../ui/dialog';
import { COMMANDS } from './commands';

const KEYS = [
  ['Enter', 'Send, or queue while a turn is running'],
  ['Shift Enter', 'New line'],
  ['Esc', 'Stop the running turn'],
  ['Up', 'Edit your last message (in an empty composer)'],
  ['Tab, Shift Tab', 'Move to a request and its buttons, and back'],
  ['y s p n, then Enter', 'On a request: allow once, for this session, always in this project; deny'],
  ['Ctrl J', 'New session'],
  ['Ctrl K', 'Search sessions, commands, models, messages and settings'],
  ['Ctrl Shift F', 'Search all sessions'],
  ['Ctrl B', 'Show or hide the session list'],
  ['Ctrl I', 'Show or hide the inspector'],
  ['Alt ↑ / Alt ↓', 'Jump to your previous or next message'],
  ['@', 'Attach a file of the workspace'],
  ['Space, P, F2, Delete', 'In the list: select, pin, rename, delete a session'],
] as const;

export function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Commands and keys" onClose={onClose}>
      <div className="grid gap-4 text-sm">
        <dl className="grid gap-1.5">
          {COMMANDS.map((command) => (
            <div key={command.name} className="grid grid-cols-[9rem_1fr] gap-2 max-sm:grid-cols-1 max-sm:gap-0">
              <dt className="font-mono">
                /{command.name} <span className="text-quiet">{command.usage}</span>
              </dt>
              <dd className="text-quiet">{command.help}</dd>
            </div>
          ))}
        </dl>
        <dl className="grid gap-1.5 border-t border-line pt-4">
          {KEYS.map(([key, what]) => (
            <div key={key} className="grid grid-cols-[9rem_1fr] gap-2">
              <dt>
                <kbd className="rounded border border-line bg-panel px-1.5 font-mono text-xs">{key}</kbd>
              </dt>
              <dd className="text-quiet">{what}</dd>
            </div>
          ))}
        </dl>
      </div>
    </Dialog>
  );
}
