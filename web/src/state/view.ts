/** The view state of the page: open panels, theme. Stored in this browser only. */

import type { Side } from '../compare/compare';
import { Store } from './store';

export type Tab = 'turn' | 'tree' | 'reflog' | 'changes' | 'rules';
const TABS: readonly Tab[] = ['turn', 'tree', 'reflog', 'changes', 'rules'];
export type Theme = 'system' | 'light' | 'dark';
export type Density = 'comfortable' | 'compact';
/** A global dialog. */
export type DialogName = 'palette' | 'settings' | 'spend' | 'triggers' | 'import' | 'help';

/** Width of the session list, in pixels. */
export const WIDTH = { min: 208, default: 288, max: 560 } as const;

export interface ViewState {
  /** The session list is open on narrow screens. */
  sidebar: boolean;
  /** The session list is hidden on wide screens. */
  collapsed: boolean;
  width: number;
  dialog: DialogName | null;
  density: Density;
  inspector: boolean;
  tab: Tab;
  /** The turn in the inspector; null is the newest. */
  turn: string | null;
  /** The turn it is compared with. */
  against: string | null;
  /** The versions that can be compared, and the two that are shown. */
  compared: { sides: Side[]; shown: [number, number] } | null;
  theme: Theme;
  /** Desktop notifications are on. */
  notices: boolean;
  /** The grouping of the session list. */
  group: 'date' | 'folder';
}

const KEY = 'clew.view';

type StoredView = Pick<ViewState, 'inspector' | 'tab' | 'theme' | 'notices' | 'group' | 'collapsed' | 'width' | 'density'>;

function load(): StoredView {
  const defaults: StoredView = { inspector: false, tab: 'turn', theme: 'system', notices: false, group: 'date', collapsed: false, width: WIDTH.default, density: 'comfortable' };
  try {
    const stored = { ...defaults, ...(JSON.parse(window.localStorage.getItem(KEY) ?? '{}') as Partial<StoredView>) };
    return TABS.includes(stored.tab) ? stored : { ...stored, tab: defaults.tab };
  } catch {
    return defaults;
  }
}

export const view = new Store<ViewState>({ sidebar: false, dialog: null, turn: null, against: null, compared: null, ...load() });

view.subscribe(() => {
  const { inspector, tab, theme, notices, group, collapsed, width, density } = view.get();
  window.localStorage.setItem(KEY, JSON.stringify({ inspector, tab, theme, notices, group, collapsed, width, density }));
});

export const closeDialog = (): void => view.set({ dialog: null });

/** Clamp a stored width. */
export function fittingWidth(width: number): number {
  return Math.round(Math.max(WIDTH.min, Math.min(Number.isFinite(width) ? width : WIDTH.default, WIDTH.max)));
}

/** Show or hide the session list, on narrow and wide screens. */
export function toggleList(): void {
  if (window.matchMedia('(min-width: 64rem)').matches) view.set(({ collapsed }) => ({ collapsed: !collapsed }));
  else view.set(({ sidebar }) => ({ sidebar: !sidebar }));
}

export function inspectTurn(turn: string | null): void {
  view.set({ inspector: true, tab: 'turn', turn, against: null });
}
