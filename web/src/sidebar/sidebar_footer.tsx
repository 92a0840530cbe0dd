/** The sidebar footer: connection, server version, usage, triggers and settings. */

import { useHost } from '../state/host';
import { useStore } from '../state/store';
import { view } from '../state/view';
import { IconButton } from '../ui/button';
import { ThemeSwitch } from './theme_switch';

export function SidebarFooter() {
  const host = useHost();
  const online = useStore(host.store, (state) => state.online);
  const server = useStore(host.store, (state) => state.server);
  const state = online === null ? 'Connecting' : online ? 'Connected' : 'Disconnected';
  const color = online === null ? 'bg-quiet' : online ? 'bg-good' : 'bg-bad';
  return (
    <footer className="flex items-center gap-1 border-t border-line px-3 py-2 text-xs text-quiet">
      <div className="flex min-w-0 flex-1 items-center gap-1.5" title={server ? `${state}: clew ${server.version}, store: ${server.store}` : state}>
        <span aria-hidden="true" className={`size-2 shrink-0 rounded-full ${color}`} />
        <span className={online && server ? 'sr-only' : 'truncate'}>{state}</span>
        {online && server && <span className="truncate">{server.version}</span>}
      </div>
      {/* Touch only; keyboards have Ctrl K. */}
      <span className="hidden pointer-coarse:contents">
        <IconButton label="Search everything" title="Search sessions, commands, models and settings" icon="search" onClick={() => view.set({ dialog: 'palette', sidebar: false })} />
      </span>
      <IconButton label="Usage" icon="coins" onClick={() => view.set({ dialog: 'spend' })} />
      <IconButton label="Triggers" icon="clock" onClick={() => view.set({ dialog: 'triggers' })} />
      <IconButton label="Settings" icon="sliders" onClick={() => view.set({ dialog: 'settings' })} />
      <ThemeSwitch />
    </footer>
  );
}
