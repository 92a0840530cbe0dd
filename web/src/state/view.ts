/** What is open on the page itself: the side panels, the look. Kept in this browser; the server knows nothing of it. */

import type { Side } from '../compare/compare';
import { Store } from './store';

export type Tab = 'turn' | 'tree' | 'reflog' | 'files' | 'rules';
export type Theme = 'system' | 'light' | 'dark';

export interface ViewState {
  /** The list of sessions on a narrow screen; it is always there on a wide one. */
  sidebar: boolean;
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

function remembered(): Pick<ViewState, 'inspector' | 'tab' | 'theme' | 'notices' | 'group'> {
  const known = { inspector: false, tab: 'turn' as Tab, theme: 'system' as Theme, notices: false, group: 'date' as const };
  try {
    return { ...known, ...(JSON.parse(window.localStorage.getItem(KEY) ?? '{}') as object) };
  } catch {
    return known;
  }
}

export const view = new Store<ViewState>({ sidebar: false, turn: null, against: null, compared: null, ...remembered() });

view.subscribe(() => {
  const { inspector, tab, theme, notices, group } = view.get();
  window.localStorage.setItem(KEY, JSON.stringify({ inspector, tab, theme, notices, group }));
});

export function inspectTurn(turn: string | null): void {
  view.set({ inspector: true, tab: 'turn', turn, against: null });
}
