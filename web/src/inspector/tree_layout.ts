/** Where each turn stands: the line straight down, what left it beside it, branches at the place they left. */

import type { TreeTurn, TreeView } from '../api/types';

export const ROW = 64;
export const LANE = 220;

export interface PlacedTurn {
  turn: TreeTurn;
  x: number;
  y: number;
}

export interface PlacedBranch {
  sessionId: string;
  title: string;
  turnId: string | null;
  x: number;
  y: number;
}

export interface TreeLayout {
  turns: PlacedTurn[];
  branches: PlacedBranch[];
  edges: { from: string; to: string; onLine: boolean }[];
}

export function treeLayout(tree: TreeView): TreeLayout {
  const byId = new Map(tree.turns.map((turn) => [turn.id, turn]));
  const lane = new Map<string, number>();
  // The deepest row each lane is used down to: a way that leaves takes the nearest lane that is free from there on.
  const used: number[] = [Number.POSITIVE_INFINITY];
  const children = new Map<string | null, TreeTurn[]>();
  for (const turn of tree.turns) {
    const parent = turn.parent_turn_id !== null && byId.has(turn.parent_turn_id) ? turn.parent_turn_id : null;
    children.set(parent, [...(children.get(parent) ?? []), turn]);
  }
  const end = (turn: TreeTurn): number => {
    let at = turn;
    for (;;) {
      const next = children.get(at.id)?.[0];
      if (!next) return at.depth;
      at = next;
    }
  };
  const take = (turn: TreeTurn): number => {
    for (let index = 1; ; index += 1) {
      if ((used[index] ?? -1) < turn.depth) {
        used[index] = end(turn) + 1;
        return index;
      }
    }
  };
  for (const turn of tree.turns) {
    if (turn.on_line) {
      lane.set(turn.id, 0);
      continue;
    }
    const parent = turn.parent_turn_id !== null ? byId.get(turn.parent_turn_id) : undefined;
    const first = parent && !parent.on_line && children.get(parent.id)?.[0]?.id === turn.id;
    lane.set(turn.id, first ? lane.get(parent.id)! : take(turn));
  }
  const turns = tree.turns.map((turn) => ({ turn, x: lane.get(turn.id)! * LANE, y: turn.depth * ROW }));
  const edges = tree.turns
    .filter((turn) => turn.parent_turn_id !== null && byId.has(turn.parent_turn_id))
    .map((turn) => ({ from: turn.parent_turn_id!, to: turn.id, onLine: turn.on_line }));
  const branches = tree.branches.map((branch) => {
    const from = branch.turn_id === null ? undefined : byId.get(branch.turn_id);
    const depth = (from?.depth ?? -1) + 1;
    let index = 1;
    while ((used[index] ?? -1) >= depth) index += 1;
    used[index] = depth;
    return {
      sessionId: branch.session_id,
      title: branch.title || branch.label || 'A branch',
      turnId: from?.id ?? null,
      x: index * LANE,
      y: depth * ROW,
    };
  });
  return { turns, branches, edges };
}
