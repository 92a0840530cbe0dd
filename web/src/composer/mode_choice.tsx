/** The permission mode of the session. */

import { useStore } from '../state/store';
import type { Mode } from '../state/conversation';
import { useThis } from '../state/use_conversation';

const MODES: { mode: Mode; name: string; means: string }[] = [
  { mode: 'ask', name: 'Ask', means: 'Calls that no rule allows need your approval' },
  { mode: 'accept_edits', name: 'Accept edits', means: 'Edits in the workspace need no approval' },
  { mode: 'read_only', name: 'Read only', means: 'Nothing is changed, even if a rule allows it' },
];
const TONES: Record<Mode, string> = { ask: 'text-quiet', accept_edits: 'text-warn', read_only: 'text-info' };

export function ModeChoice() {
  const conversation = useThis();
  const mode = useStore(conversation.store, (state) => (state.session ? (state.session.mode ?? 'ask') : null));
  // Not loaded yet; showing a default would change and move a moment later.
  if (mode === null) return null;
  return (
    <select
      aria-label="Mode"
      title={MODES.find((one) => one.mode === mode)?.means}
      value={mode}
      onChange={(event) => void conversation.setMode(event.target.value as Mode).catch(() => undefined)}
      className={`field-sizing-content min-w-0 rounded-md bg-transparent px-1.5 py-1 text-sm hover:bg-panel ${TONES[mode]}`}
    >
      {MODES.map((one) => (
        <option key={one.mode} value={one.mode} className="bg-raised text-ink">
          {one.name}
        </option>
      ))}
    </select>
  );
}
