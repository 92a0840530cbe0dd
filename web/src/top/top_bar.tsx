/** Above the conversation: what it is called, what it is doing, how full its window is, and what can be done. */

import { modelName } from '../api/types';
import { stateOf } from '../sidebar/session_state';
import { useStore } from '../state/store';
import { useThis } from '../state/use_conversation';
import { toggleList, view } from '../state/view';
import { IconButton } from '../ui/button';
import { BesideBar } from './beside_bar';
import { Gauge } from './gauge';
import { ParentLink } from './parent_link';
import { SessionTitle } from './session_title';
import { StatusLine } from './status_line';
import { TopActions } from './top_actions';
import { useSession } from './use_session';

export function TopBar({ main, onClose }: { main: boolean; onClose?: () => void }) {
  return main ? <MainBar /> : <BesideBar onClose={onClose} />;
}

function MainBar() {
  const conversation = useThis();
  const session = useSession();
  const model = modelName(session?.model);
  const root = session?.workspace_root ?? null;
  const place = [model, root?.split('/').at(-1), session?.agent].filter(Boolean).join(' · ');
  // On a narrow screen what it is doing says more than who answers.
  const resting = useStore(conversation.store, (state) => stateOf(state.status) === 'idle');
  const archived = (session?.archived_at ?? null) !== null;
  const collapsed = useStore(view, (state) => state.collapsed);
  return (
    <header className="@container relative z-5 flex items-center gap-2 border-b border-line bg-paper px-3 py-1.5">
      <IconButton label="Sessions" icon="menu" title="Sessions (Ctrl B)" className={collapsed ? '' : 'lg:hidden'} onClick={toggleList} />
      <div className="grid min-w-0 flex-1 grid-cols-1">
        <SessionTitle />
        {/* Its room is kept, so that nothing moves when it is known. */}
        <div className="flex min-h-4 min-w-0 items-center text-xs text-quiet">
          <StatusLine />
          <span className={`me-2 min-w-0 truncate ${resting ? '' : 'hidden @lg:inline'}`} title={[model, root, session?.agent].filter(Boolean).join('\n')}>
            {place}
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
