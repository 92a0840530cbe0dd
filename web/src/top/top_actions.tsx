/** The buttons of the top bar, or one menu where they do not fit. */

import { useStore } from '../state/store';
import { view } from '../state/view';
import { Button, IconButton } from '../ui/button';
import { Icon } from '../ui/icon';
import { Menu, type MenuItem } from '../ui/menu';
import { type Format, FORMATS } from './export';
import { useActions } from './use_actions';

export function TopActions() {
  const { doing, compact, prune, sidecar, save } = useActions();
  const inspector = useStore(view, (state) => state.inspector);
  const exports: MenuItem[] = (Object.keys(FORMATS) as Format[]).map((format) => ({
    label: `Export as ${FORMATS[format]}`,
    icon: 'file',
    disabled: doing === 'export',
    pick: () => save(format),
  }));
  const toggle = () => view.set({ inspector: !inspector });
  const all: MenuItem[] = [
    { label: doing === 'compact' ? 'Compacting…' : 'Compact now', icon: 'compact', disabled: doing !== null, pick: compact },
    { label: doing === 'prune' ? 'Pruning…' : 'Prune now', icon: 'prune', disabled: doing !== null, pick: prune },
    { label: 'Open sidecar', icon: 'sidecar', disabled: doing !== null, pick: sidecar },
    { label: inspector ? 'Close inspector' : 'Open inspector', icon: 'panel', pick: toggle },
    ...exports,
  ];
  return (
    <>
      <div className="hidden items-center gap-0.5 @3xl:flex">
        <Button look="quiet" icon="compact" title="Compact now: summarise older turns" disabled={doing !== null} onClick={compact}>
          {doing === 'compact' ? 'Compacting…' : 'Compact'}
          <span className="sr-only"> now</span>
        </Button>
        <Button look="quiet" icon="prune" title="Prune now: replace older tool outputs with stubs for the model" disabled={doing !== null} onClick={prune}>
          {doing === 'prune' ? 'Pruning…' : 'Prune'}
          <span className="sr-only"> now</span>
        </Button>
        <Button look="quiet" icon="sidecar" title="Open sidecar: ask in a side chat" disabled={doing !== null} onClick={sidecar}>
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
