import { describe, expect, it } from 'vitest';
import type { TreeTurn, TreeView } from '../api/types';
import { LANE, ROW, treeLayout } from './tree_layout';

function turn(id: string, parent: string | null, depth: number, onLine: boolean): TreeTurn {
  return {
    id,
    parent_turn_id: parent,
    kind: 'normal',
    status: 'completed',
    created_at: depth,
    settled_at: depth,
    depth,
    origin_turn_id: null,
    on_line: onLine,
    is_head: false,
    text: id,
    messages: [],
  };
}

function tree(turns: TreeTurn[], branches: TreeView['branches'] = []): TreeView {
  return { session_id: 's', head_turn_id: null, open_turn_id: null, turns, branches };
}

const places = (view: TreeView) => Object.fromEntries(treeLayout(view).turns.map(({ turn: { id }, x, y }) => [id, [x / LANE, y / ROW]]));

describe('treeLayout', () => {
  it('draws the line straight down', () => {
    expect(places(tree([turn('a', null, 0, true), turn('b', 'a', 1, true), turn('c', 'b', 2, true)]))).toEqual({ a: [0, 0], b: [0, 1], c: [0, 2] });
  });

  it('puts what left the line beside it, and keeps it together', () => {
    const view = tree([turn('a', null, 0, true), turn('x', 'a', 1, false), turn('y', 'x', 2, false), turn('b', 'a', 1, true)]);
    expect(places(view)).toEqual({ a: [0, 0], x: [1, 1], y: [1, 2], b: [0, 1] });
  });

  it('never puts two turns in one place', () => {
    const turns = [turn('a', null, 0, true)];
    for (let index = 0; index < 40; index += 1) {
      const parent = turns[(index * 7) % turns.length]!;
      turns.push(turn(`t${index}`, parent.id, parent.depth + 1, false));
    }
    const seen = treeLayout(tree(turns)).turns.map(({ x, y }) => `${x} ${y}`);
    expect(new Set(seen).size).toBe(turns.length);
  });

  it('puts a branch where it left, in a lane of its own', () => {
    const branch = { session_id: 'ses', title: 'Aside', label: null, from_message_id: 'm', turn_id: 'a', created_at: 1 };
    const laid = treeLayout(tree([turn('a', null, 0, true), turn('x', 'a', 1, false)], [branch]));
    expect(laid.branches).toEqual([{ sessionId: 'ses', title: 'Aside', turnId: 'a', x: 2 * LANE, y: ROW }]);
  });
});
