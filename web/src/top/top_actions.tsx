/** The buttons of the top bar, or one menu where they do not fit. */

import { useStore } from '../state/store';
import { view } from '../state/view';
import { Button, IconButton } from '../ui/button';
import { Icon } from '../ui/icon';
import { Menu, type MenuItem } from '../ui/menu';
import { type Format, FORMATS } from './export';
import { useActions } from './use_actions';

export function TopActions() {
  const { inProgress, compact, prune, sidecar, save } = useActions();
  const inspector = useStore(view, (state) => state.inspector);
  const exports: MenuItem[] = (Object.keys(FORMATS) as Format[]).map((format) => ({
    label: `Export as ${FORMATS[format]}`,
    icon: 'file',
    disabled: inProgress === 'export',
    pick: () => save(format),
  }));
  const toggle = () => view.set({ inspector: !inspector });
  const all: MenuItem[] = [
    { label: inProgress === 'compact' ? 'Compacting…' : 'Compact now', icon: 'compact', disabled: inProgress !== null, pick: compact },
    { label: inProgress === 'prune' ? 'Pruning…' : 'Prune now', icon: 'prune', disabled: inProgress !== null, pick: prune },
    { label: 'Open sidecar', icon: 'sidecar', disabled: inProgress !== null, pick: sidecar },
    { label: inspector ? 'Close inspector' : 'Open inspector', icon: 'panel', pick: toggle },
    ...exports,
  ];
  return (
    <>
      <div className="hidden items-center gap-0.5 @3xl:flex">
        <Button tone="quiet" icon="compact" title="Compact now: summarise older turns" disabled={inProgress !== null} onClick={compact}>
          {inProgress === 'compact' ? 'Compacting…' : 'Compact'}
          <span className="sr-only"> now</span>
        </Button>
        <Button tone="quiet" icon="prune" title="Prune now: replace older tool outputs with stubs for the model" disabled={inProgress !== null} onClick={prune}>
          {inProgress === 'prune' ? 'Pruning…' : 'Prune'}
          <span className="sr-only"> now</span>
        </Button>
        <Button tone="quiet" icon="sidecar" title="Open sidecar: ask in a side chat" disabled={inProgress !== null} onClick={sidecar}>
          <span className="sr-only">Open </span>Sidecar
        </Button>
        <Menu label="Export" items={exports}>
          <Icon name="dots" />
        </Menu>
        <IconButton label="Inspector (Ctrl I)" icon="panel" aria-pressed={inspector} className={inspector ? 'bg-panel text-ink' : ''} onClick={toggle} />
      </div>
      <div className="@3xl:hidden">
        <Menu label="Session actions" items={all}>
          <Icon name="dots" />
        </Menu>
      </div>
    </>
  );
}
