/** The top bar of the side pane. */

import { modelName } from '../api/types';
import { useHost } from '../state/host';
import { goTo, useRoute } from '../state/route';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { Icon } from '../ui/icon';
import { IconButton } from '../ui/button';
import { Menu } from '../ui/menu';
import { Gauge } from './gauge';
import { SessionTitle } from './session_title';
import { StatusLine } from './status_line';

export function SidePaneBar({ onClose }: { onClose?: () => void }) {
  const conversation = useThis();
  const host = useHost();
  const route = useRoute();
  const ephemeral = useStore(conversation.store, (state) => state.session?.metadata.ephemeral === true);
  const model = useStore(conversation.store, (state) => modelName(state.session?.model));
  const other = useStore(host.store, (state) => state.sessions.find((session) => session.id === route.session)?.title ?? null);
  const label = ephemeral ? 'Side chat, not added to the main one' : `Next to ${other ? `“${other}”` : 'the main conversation'}`;
  return (
    <header className="@container relative z-5 flex items-center gap-2 border-b border-line bg-paper px-3 py-1.5">
      <div className="grid min-w-0 flex-1 grid-cols-1">
        <SessionTitle fallback={ephemeral ? 'Sidecar' : 'Untitled'} />
        <div className="flex min-w-0 items-center text-xs text-quiet">
          <StatusLine />
          <span dir="auto" className="min-w-0 truncate" title={`${label}. ${model}`}>
            {label}
          </span>
        </div>
      </div>
      <Gauge />
      <Menu
        label="Side conversation actions"
        items={[
          { label: 'Open in main pane', icon: 'panel', pick: () => goTo({ session: conversation.id }) },
          { label: 'Swap panes', icon: 'retry', pick: () => goTo({ session: conversation.id, side: route.session }) },
          { label: 'Compact now', icon: 'compact', pick: () => void conversation.compact().catch(() => undefined) },
        ]}
      >
        <Icon name="dots" />
      </Menu>
      {onClose && <IconButton label="Close this pane" icon="close" onClick={onClose} />}
    </header>
  );
}
