/** Rewound turns: what hangs off the line, gathered at the places where it left. */

import type { TreeTurn, TreeView } from '../api/types';

export interface RewoundGroup {
  /** The first turn off the line; names the group. */
  root: string;
  /** The turn of the line after which it left; null is the beginning. */
  after: string | null;
  /** All its turns, parents before children. */
  turns: TreeTurn[];
  /** How many messages are hidden with it. */
  hidden: number;
  /** The newest end of it: where an un-rewind leads. */
  tip: string;
}

export function rewoundGroups(tree: TreeView | null): RewoundGroup[] {
  if (!tree) return [];
  const onLine = new Set<string>();
  const shown = new Set<string>();
  for (const turn of tree.turns) {
    if (!turn.on_line) continue;
    onLine.add(turn.id);
    for (const message of turn.messages) shown.add(message);
  }
  const groups = new Map<string, RewoundGroup>();
  const rootOf = new Map<string, string>();
  for (const turn of tree.turns) {
    // A refused prompt was handed back to whoever typed it; a turn that is open is on its way onto the line.
    if (turn.on_line || turn.status === 'refused' || turn.id === tree.open_turn_id) continue;
    const parent = turn.parent_turn_id ?? null;
    const root = parent !== null && !onLine.has(parent) ? (rootOf.get(parent) ?? turn.id) : turn.id;
    rootOf.set(turn.id, root);
    const group = groups.get(root);
    if (group) group.turns.push(turn);
    else groups.set(root, { root, after: parent !== null && onLine.has(parent) ? parent : null, turns: [turn], hidden: 0, tip: turn.id });
  }
  for (const group of groups.values()) {
    const hidden = new Set<string>();
    let newest = group.turns[0]!;
    for (const turn of group.turns) {
      for (const message of turn.messages) if (!shown.has(message)) hidden.add(message);
      if (turn.created_at >= newest.created_at) newest = turn;
    }
    group.hidden = hidden.size;
    group.tip = newest.id;
  }
  return [...groups.values()].filter((group) => group.hidden > 0);
}
