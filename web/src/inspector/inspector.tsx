/** The inspector: a turn in detail, the tree, the reflog, changes of files and rules. */

import { lazy, Suspense, useRef } from 'react';
import type { Conversation } from '../state/conversation';
import { useStore } from '../state/store';
import { ConversationContext, useConversation } from '../state/use_conversation';
import { type Tab, view } from '../state/view';
import { IconButton } from '../ui/button';
import { ChangesSkeleton } from '../files/changes_skeleton';
import { ReflogTab } from './reflog_tab';
import { RulesTab } from './rules_tab';
import { TurnTab } from './turn_tab';

// Loaded on first use.
const ChangesTab = lazy(() => import('../files/changes_tab').then((module) => ({ default: module.ChangesTab })));
const TreeTab = lazy(() => import('./tree_tab').then((module) => ({ default: module.TreeTab })));

const TABS: { tab: Tab; name: string }[] = [
  { tab: 'turn', name: 'Turn' },
  { tab: 'tree', name: 'Tree' },
  { tab: 'reflog', name: 'Reflog' },
  { tab: 'changes', name: 'Changes' },
  { tab: 'rules', name: 'Rules' },
];

export function Inspector({ id }: { id: string }) {
  const conversation = useConversation(id);
  return conversation && <InspectorTabs conversation={conversation} />;
}

function InspectorTabs({ conversation }: { conversation: Conversation }) {
  const tab = useStore(view, (state) => state.tab);
  const tabs = useRef<HTMLDivElement>(null);
  const move = (step: number) => {
    const at = TABS.findIndex((entry) => entry.tab === tab);
    const next = TABS[(at + step + TABS.length) % TABS.length]!;
    view.set({ tab: next.tab });
    tabs.current?.querySelector<HTMLButtonElement>(`#tab-${next.tab}`)?.focus();
  };
  return (
    <ConversationContext value={conversation}>
      <div className="flex h-full flex-col">
        <header className="flex items-center gap-1 border-b border-line px-2 py-1.5">
          <div
            ref={tabs}
            role="tablist"
            aria-label="Inspector"
            className="flex min-w-0 flex-1 gap-1 max-xl:gap-0"
            onKeyDown={(event) => {
              if (event.key === 'ArrowRight') move(1);
              else if (event.key === 'ArrowLeft') move(-1);
              else return;
              event.preventDefault();
            }}
          >
            {TABS.map((entry) => (
              <button
                key={entry.tab}
                id={`tab-${entry.tab}`}
                type="button"
                role="tab"
                aria-selected={tab === entry.tab}
                aria-controls="inspector-panel"
                tabIndex={tab === entry.tab ? 0 : -1}
                onClick={() => view.set({ tab: entry.tab })}
                className={`rounded-md px-2.5 py-1 text-sm max-xl:px-1.5 ${tab === entry.tab ? 'bg-raised font-medium text-ink' : 'text-quiet hover:text-ink'}`}
              >
                {entry.name}
              </button>
            ))}
          </div>
          <IconButton label="Close the inspector" icon="close" onClick={() => view.set({ inspector: false })} />
        </header>
        <div id="inspector-panel" role="tabpanel" aria-labelledby={`tab-${tab}`} tabIndex={0} className="min-h-0 flex-1 overflow-auto">
          {tab === 'turn' && <TurnTab />}
          {tab === 'tree' && (
            <Suspense fallback={<p className="p-4 text-sm text-quiet">Loading the tree…</p>}>
              <TreeTab />
            </Suspense>
          )}
          {tab === 'reflog' && <ReflogTab key={conversation.id} />}
          {tab === 'changes' && (
            <Suspense fallback={<ChangesSkeleton />}>
              <ChangesTab key={conversation.id} />
            </Suspense>
          )}
          {tab === 'rules' && <RulesTab />}
        </div>
      </div>
    </ConversationContext>
  );
}
