/** Rewound turns, grouped by the turn after which they left the current path, and the versions of a turn. */

import type { TreeTurn, TreeView } from '../api/types';

export interface RewoundGroup {
  /** The first rewound turn; identifies the group. */
  root: string;
  /** The turn of the current path after which it left; null is the beginning. */
  after: string | null;
  /** All its turns, parents before children. */
  turns: TreeTurn[];
  /** Number of hidden messages. */
  hidden: number;
  /** Its newest last turn, which becomes the head when restored. */
  tip: string;
  /** All of it can be reached with the version switch, so it is shown only to reveal a message in it. */
  covered: boolean;
}

export function rewoundGroups(tree: TreeView | null): RewoundGroup[] {
  if (!tree) return [];
  const read = new Set(tree.turns.map((turn) => turn.id));
  const onLine = new Set<string>();
  const shown = new Set<string>();
  for (const turn of tree.turns) {
    if (!turn.on_line) continue;
    onLine.add(turn.id);
    for (const message of turn.messages) shown.add(message);
  }
  const groups = new Map<string | null, RewoundGroup>();
  const leftAfter = new Map<string, string | null>();
  const rootOf = new Map<string, string>();
  for (const turn of tree.turns) {
    // The text of a refused prompt was returned to the user; an open turn will be on the current path.
    if (turn.on_line || turn.status === 'refused' || turn.id === tree.open_turn_id) continue;
    const parent = turn.parent_turn_id ?? null;
    // The turn it left is not loaded yet; skip it and its descendants.
    if (parent !== null && !read.has(parent)) {
      read.delete(turn.id);
      continue;
    }
    const root = parent !== null && !onLine.has(parent) ? (rootOf.get(parent) ?? turn.id) : turn.id;
    rootOf.set(turn.id, root);
    const after = parent !== null && onLine.has(parent) ? parent : null;
    const left = root === turn.id ? after : leftAfter.get(root)!;
    leftAfter.set(root, left);
    const group = groups.get(left);
    if (group) group.turns.push(turn);
    else groups.set(left, { root, after: left, turns: [turn], hidden: 0, tip: turn.id, covered: false });
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
  const versions = versionsIn(tree);
  for (const turn of tree.turns) {
    const group = turn.on_line ? groups.get(turn.parent_turn_id ?? null) : undefined;
    if (group && versions.has(turn.messages[0] ?? '')) group.covered = true;
  }
  return [...groups.values()].filter((group) => group.hidden > 0);
}

export interface Versions {
  /** The first turn of each. */
  roots: string[];
  /** The last turn of each, oldest first; moving the head there selects the version. */
  tips: string[];
  /** Index of the version on the current path. */
  at: number;
}

const known = new WeakMap<TreeView, Map<string, Versions>>();

/** Return the turns of the current path that have several versions, by their first message. */
export function versionsIn(tree: TreeView | null): Map<string, Versions> {
  if (!tree) return new Map();
  const found = known.get(tree);
  if (found) return found;
  const turns = new Map(tree.turns.map((turn) => [turn.id, turn]));
  // Skip summaries between a turn and the one it follows.
  const follows = (turn: TreeTurn): string | null | undefined => {
    if (turn.parent_turn_id === null) return null;
    const parent = turns.get(turn.parent_turn_id);
    return parent?.kind === 'compaction' ? follows(parent) : parent?.id;
  };
  const siblingsOf = new Map<string | null, TreeTurn[]>();
  const tips = new Map<string, TreeTurn>();
  const counted = tree.turns.filter((turn) => turn.status !== 'refused');
  for (const turn of counted) {
    // An unanswered attempt that was replaced is not a version.
    if (turn.kind === 'compaction' || (turn.status === 'unanswered' && !turn.on_line)) continue;
    const parent = follows(turn);
    // Not loaded yet, so its other children are unknown.
    if (parent === undefined) continue;
    const siblings = siblingsOf.get(parent);
    if (siblings) siblings.push(turn);
    else siblingsOf.set(parent, [turn]);
  }
  // Children come after their parents, so iterate backwards to pass the newest tips up.
  for (const turn of counted.toReversed()) {
    const tip = tips.get(turn.id) ?? turn;
    tips.set(turn.id, tip);
    if (turn.parent_turn_id !== null && tip.created_at >= (tips.get(turn.parent_turn_id)?.created_at ?? 0)) tips.set(turn.parent_turn_id, tip);
  }
  const versions = new Map<string, Versions>();
  for (const siblings of siblingsOf.values()) {
    siblings.sort((one, other) => one.created_at - other.created_at);
    const at = siblings.findIndex((turn) => turn.on_line);
    const first = siblings[at]?.messages[0];
    if (siblings.length > 1 && first !== undefined) versions.set(first, { roots: siblings.map((turn) => turn.id), tips: siblings.map((turn) => tips.get(turn.id)!.id), at });
  }
  known.set(tree, versions);
  return versions;
}
