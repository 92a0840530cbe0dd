/** All commands and keys on one page. */

import { Dialog } from '../ui/dialog';
import { COMMANDS } from './commands';

const KEYS = [
  ['Enter', 'Send, or queue while something runs'],
  ['Shift Enter', 'A new line'],
  ['Esc', 'Stop what runs'],
  ['Up', 'Edit your last message, in an empty field'],
  ['Tab, Shift Tab', 'To a request and its buttons, and back'],
  ['y s p n, then Enter', 'At a request: allow once, for this session, always in this project; deny'],
  ['Ctrl J', 'A new session'],
  ['Ctrl K', 'The palette: sessions, commands, models, messages, settings'],
  ['Ctrl Shift F', 'Search all sessions'],
  ['Ctrl B', 'The list of sessions, in sight or out of it'],
  ['Ctrl I', 'The inspector'],
  ['Alt ↑ / Alt ↓', 'To your previous or next question'],
  ['@', 'A file of the folder, sent along'],
  ['Space, P, F2, Delete', 'In the list: choose, pin, rename, delete a session'],
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
