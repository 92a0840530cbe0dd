/**
 * Lays out the tree for a tall, narrow panel, one turn per row. The current path runs straight down; rewound turns and
 * branches are indented right below the turn they left.
 */

import type { TreeTurn, TreeView } from '../api/types';

export const ROW = 52;
export const INDENT = 26;

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

export interface PlacedEdge {
  from: string;
  to: string;
  onLine: boolean;
  /** The two turns are in different columns. */
  changesColumn: boolean;
}

export interface TreeLayout {
  turns: PlacedTurn[];
  branches: PlacedBranch[];
  edges: PlacedEdge[];
}

type Row = { turn: TreeTurn; column: number } | { branch: TreeView['branches'][number]; column: number };

export function treeLayout(tree: TreeView): TreeLayout {
  const byId = new Map(tree.turns.map((turn) => [turn.id, turn]));
  const children = new Map<string | null, TreeTurn[]>();
  for (const turn of tree.turns) {
    const parent = turn.parent_turn_id !== null && byId.has(turn.parent_turn_id) ? turn.parent_turn_id : null;
    const siblings = children.get(parent);
    if (siblings) siblings.push(turn);
    else children.set(parent, [turn]);
  }
  const leaving = new Map<string | null, TreeView['branches']>();
  for (const branch of tree.branches) {
    const from = branch.turn_id !== null && byId.has(branch.turn_id) ? branch.turn_id : null;
    leaving.set(from, [...(leaving.get(from) ?? []), branch]);
  }

  const xOf = new Map<string, number>();
  const layout: TreeLayout = { turns: [], branches: [], edges: [] };
  // A stack instead of recursion, which thousands of turns would overflow.
  const rest: Row[] = [];
  const follow = (id: string | null, column: number) => {
    const next = [...(children.get(id) ?? [])];
    // One child continues in the same column: the one on the current path, or else the first.
    const straight = next.find((turn) => turn.on_line) ?? (id === null ? undefined : next[0]);
    const indented: Row[] = [
      ...(leaving.get(id) ?? []).map((branch) => ({ branch, column: column + 1 })),
      ...next.filter((turn) => turn !== straight).map((turn) => ({ turn, column: column + 1 })),
    ];
    if (straight) rest.push({ turn: straight, column });
    rest.push(...indented.reverse());
  };
  follow(null, 0);
  for (let row = 0, item = rest.pop(); item; row += 1, item = rest.pop()) {
    const x = item.column * INDENT;
    const y = row * ROW;
    if ('branch' in item) {
      const { branch } = item;
      const turnId = branch.turn_id !== null && byId.has(branch.turn_id) ? branch.turn_id : null;
      layout.branches.push({ sessionId: branch.session_id, title: branch.title || branch.label || 'Branch', turnId, x, y });
      continue;
    }
    const { turn, column } = item;
    layout.turns.push({ turn, x, y });
    xOf.set(turn.id, x);
    const parent = turn.parent_turn_id === null ? undefined : byId.get(turn.parent_turn_id);
    if (parent) {
      layout.edges.push({ from: parent.id, to: turn.id, onLine: turn.on_line, changesColumn: xOf.get(parent.id) !== x });
    }
    follow(turn.id, column);
  }
  return layout;
}
