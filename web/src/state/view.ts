/** What is open on the page itself: the side panels, the look. Kept in this browser; the server knows nothing of it. */

import type { Side } from '../compare/compare';
import { Store } from './store';

export type Tab = 'turn' | 'tree' | 'reflog' | 'files' | 'rules';
export type Theme = 'system' | 'light' | 'dark';
export type Density = 'comfortable' | 'compact';
/** A dialog that can be opened from anywhere. */
export type Opened = 'palette' | 'settings' | 'spend' | 'triggers' | 'import' | 'help';

/** How wide the list of sessions may be drawn, in pixels. */
export const WIDTH = { least: 208, usual: 288, most: 560 } as const;

export interface ViewState {
  /** The list of sessions on a narrow screen; it is always there on a wide one. */
  sidebar: boolean;
  /** The list put out of sight on a wide screen, and how wide it is there. */
  collapsed: boolean;
  width: number;
  opened: Opened | null;
  density: Density;
  inspector: boolean;
  tab: Tab;
  /** The turn the inspector shows; null is the newest. */
  turn: string | null;
  /** The turn it is compared with. */
  against: string | null;
  /** What is compared, all that could be, and which two of it are shown; null is nothing. */
  compared: { sides: Side[]; shown: [number, number] } | null;
  theme: Theme;
  /** Whether the system tells of sessions that wait or are done while nobody looks. */
  notices: boolean;
  /** How the list of sessions is grouped. */
  group: 'date' | 'folder';
}

const KEY = 'clew.view';

type Kept = Pick<ViewState, 'inspector' | 'tab' | 'theme' | 'notices' | 'group' | 'collapsed' | 'width' | 'density'>;

function remembered(): Kept {
  const known: Kept = { inspector: false, tab: 'turn', theme: 'system', notices: false, group: 'date', collapsed: false, width: WIDTH.usual, density: 'comfortable' };
  try {
    return { ...known, ...(JSON.parse(window.localStorage.getItem(KEY) ?? '{}') as Partial<Kept>) };
  } catch {
    return known;
  }
}

export const view = new Store<ViewState>({ sidebar: false, opened: null, turn: null, against: null, compared: null, ...remembered() });

view.subscribe(() => {
  const { inspector, tab, theme, notices, group, collapsed, width, density } = view.get();
  window.localStorage.setItem(KEY, JSON.stringify({ inspector, tab, theme, notices, group, collapsed, width, density }));
});

export const closeDialog = (): void => view.set({ opened: null });

/** What is drawn: whatever was kept, a list can be grasped and leaves room for the rest. */
export function fittingWidth(wanted: number): number {
  return Math.round(Math.max(WIDTH.least, Math.min(Number.isFinite(wanted) ? wanted : WIDTH.usual, WIDTH.most)));
}

/** The list of sessions, in sight or out of it, on whatever screen this is. */
export function toggleList(): void {
  if (window.matchMedia('(min-width: 64rem)').matches) view.set(({ collapsed }) => ({ collapsed: !collapsed }));
  else view.set(({ sidebar }) => ({ sidebar: !sidebar }));
}

export function inspectTurn(turn: string | null): void {
  view.set({ inspector: true, tab: 'turn', turn, against: null });
}
