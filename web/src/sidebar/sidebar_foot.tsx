/** Below the list: the connection, which server this is, and the look of the page. */

import { useState } from 'react';
import { allowNotices } from '../frame/notices';
import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { view } from '../state/view';
import { TriggersDialog } from '../triggers/triggers_dialog';
import { IconButton } from '../ui/button';
import { ThemeSwitch } from './theme_switch';

export function SidebarFoot() {
  const host = useHost();
  const [triggers, setTriggers] = useState(false);
  const online = useStore(host.store, (state) => state.online);
  const server = useStore(host.store, (state) => state.server);
  const notices = useStore(view, (state) => state.notices);
  const toggle = async () => {
    const allowed = notices || (await allowNotices());
    view.set({ notices: allowed && !notices });
    if (!allowed) host.store.set({ notice: 'The browser does not let this page send notifications. Allow them in its settings for this address, then press again.' });
  };
  const state = online === null ? 'Connecting' : online ? 'Connected' : 'Server away';
  const look = online === null ? 'bg-quiet' : online ? 'bg-good' : 'bg-bad';
  return (
    <footer className="flex items-center gap-2 border-t border-line px-3 py-2 text-xs text-quiet">
      <div className="grid min-w-0 flex-1 grid-cols-1">
        <span className="flex items-center gap-1.5">
          <span aria-hidden="true" className={`size-2 shrink-0 rounded-full ${look}`} />
          <span className="truncate">{state}</span>
        </span>
        {server && (
          <span className="truncate" title={`clew ${server.version}, store: ${server.store}`}>
            clew {server.version}
          </span>
        )}
      </div>
      <IconButton label="Tell me when a session waits or is done" icon={notices ? 'bell' : 'bell_off'} aria-pressed={notices} onClick={() => void toggle()} />
      <IconButton label="Triggers" icon="clock" onClick={() => setTriggers(true)} />
      <ThemeSwitch />
      {triggers && <TriggersDialog onClose={() => setTriggers(false)} />}
    </footer>
  );
}
