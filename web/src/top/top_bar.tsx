/** The top bar: title, state, context gauge and actions. */

import { modelName } from '../api/types';
import { stateOf } from '../sidebar/session_state';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { toggleList, view } from '../state/view';
import { IconButton } from '../ui/button';
import { SidePaneBar } from './side_pane_bar';
import { Gauge } from './gauge';
import { ParentLink } from './parent_link';
import { SessionTitle } from './session_title';
import { StatusLine } from './status_line';
import { TopActions } from './top_actions';
import { useSession } from './use_session';

export function TopBar({ main, onClose }: { main: boolean; onClose?: () => void }) {
  return main ? <MainBar /> : <SidePaneBar onClose={onClose} />;
}

function MainBar() {
  const conversation = useThis();
  const session = useSession();
  const model = modelName(session?.model);
  const root = session?.workspace_root ?? null;
  const details = [model, root?.split('/').at(-1), session?.agent].filter(Boolean).join(' · ');
  // On narrow screens the state replaces the model.
  const idle = useStore(conversation.store, (state) => stateOf(state.status) === 'idle');
  const archived = (session?.archived_at ?? null) !== null;
  const collapsed = useStore(view, (state) => state.collapsed);
  return (
    <header className="@container relative z-5 flex items-center gap-2 border-b border-line bg-paper px-3 py-1.5">
      <IconButton label="Sessions" icon="menu" title="Sessions (Ctrl B)" className={collapsed ? '' : 'lg:hidden'} onClick={toggleList} />
      <div className="grid min-w-0 flex-1 grid-cols-1">
        <SessionTitle />
        {/* Reserve the space, so that nothing moves when it loads. */}
        <div className="flex min-h-4 min-w-0 items-center text-xs text-quiet">
          <StatusLine />
          <span className={`me-2 min-w-0 truncate ${idle ? '' : 'hidden @lg:inline'}`} title={[model, root, session?.agent].filter(Boolean).join('\n')}>
            {details}
          </span>
          {archived && <span className="me-2 shrink-0">archived</span>}
          <ParentLink />
        </div>
      </div>
      <Gauge />
      <TopActions />
    </header>
  );
}
