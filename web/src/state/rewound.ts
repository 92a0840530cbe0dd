/** Rewound turns: what hangs off the line, gathered at the places where it left; and the versions of a turn there are. */

import type { TreeTurn, TreeView } from '../api/types';

export interface RewoundGroup {
  /** The first turn off the line; names the group. */
  root: string;
  /** How many ways left here. */
  ways: number;
  /** The turn of the line after which it left; null is the beginning. */
  after: string | null;
  /** All its turns, parents before children. */
  turns: TreeTurn[];
  /** How many messages are hidden with it. */
  hidden: number;
  /** The newest end of it: where an un-rewind leads. */
  tip: string;
  /** The switch of versions beside it leads to all of it: it is shown only when something in it is looked for. */
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
  const placeOf = new Map<string, string | null>();
  const rootOf = new Map<string, string>();
  for (const turn of tree.turns) {
    // A refused prompt was handed back to whoever typed it; a turn that is open is on its way onto the line.
    if (turn.on_line || turn.status === 'refused' || turn.id === tree.open_turn_id) continue;
    const parent = turn.parent_turn_id ?? null;
    // Where it left was not read yet, so it is not told of yet; nor is what hangs below it.
    if (parent !== null && !read.has(parent)) {
      read.delete(turn.id);
      continue;
    }
    const root = parent !== null && !onLine.has(parent) ? (rootOf.get(parent) ?? turn.id) : turn.id;
    rootOf.set(turn.id, root);
    const after = parent !== null && onLine.has(parent) ? parent : null;
    const place = root === turn.id ? after : placeOf.get(root)!;
    placeOf.set(root, place);
    const group = groups.get(place);
    if (group) group.turns.push(turn);
    else groups.set(place, { root, ways: 0, after: place, turns: [turn], hidden: 0, tip: turn.id, covered: false });
    if (root === turn.id) groups.get(place)!.ways += 1;
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
  /** Where each of them begins. */
  roots: string[];
  /** Where each of them ends, oldest first: where the head goes to have it on the line. */
  tips: string[];
  /** Which of them is on the line. */
  at: number;
}

const known = new WeakMap<TreeView, Map<string, Versions>>();

/** Turns of the line that were said or answered in more than one way, by their first message. */
export function versionsIn(tree: TreeView | null): Map<string, Versions> {
  if (!tree) return new Map();
  const found = known.get(tree);
  if (found) return found;
  const turns = new Map(tree.turns.map((turn) => [turn.id, turn]));
  // A summary may stand between a turn and the one it follows.
  const follows = (turn: TreeTurn): string | null | undefined => {
    if (turn.parent_turn_id === null) return null;
    const parent = turns.get(turn.parent_turn_id);
    return parent?.kind === 'compaction' ? follows(parent) : parent?.id;
  };
  const ways = new Map<string | null, TreeTurn[]>();
  const tips = new Map<string, TreeTurn>();
  const counted = tree.turns.filter((turn) => turn.status !== 'refused');
  for (const turn of counted) {
    // One that was begun anew and left before it was answered says nothing else.
    if (turn.kind === 'compaction' || (turn.status === 'unanswered' && !turn.on_line)) continue;
    const parent = follows(turn);
    // Not read yet: what else follows it is not known.
    if (parent === undefined) continue;
    const siblings = ways.get(parent);
    if (siblings) siblings.push(turn);
    else ways.set(parent, [turn]);
  }
  // Children come after their parents, so backwards the newest end of each is known before it is handed up.
  for (const turn of counted.toReversed()) {
    const tip = tips.get(turn.id) ?? turn;
    tips.set(turn.id, tip);
    if (turn.parent_turn_id !== null && tip.created_at >= (tips.get(turn.parent_turn_id)?.created_at ?? 0)) tips.set(turn.parent_turn_id, tip);
  }
  const versions = new Map<string, Versions>();
  for (const siblings of ways.values()) {
    siblings.sort((one, other) => one.created_at - other.created_at);
    const at = siblings.findIndex((turn) => turn.on_line);
    const first = siblings[at]?.messages[0];
    if (siblings.length > 1 && first !== undefined) versions.set(first, { roots: siblings.map((turn) => turn.id), tips: siblings.map((turn) => tips.get(turn.id)!.id), at });
  }
  known.set(tree, versions);
  return versions;
}
