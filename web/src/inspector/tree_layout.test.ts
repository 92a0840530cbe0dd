import { describe, expect, it } from 'vitest';
import type { TreeTurn, TreeView } from '../api/types';
import { INDENT, ROW, treeLayout } from './tree_layout';

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

const positions = (view: TreeView) => Object.fromEntries(treeLayout(view).turns.map(({ turn: { id }, x, y }) => [id, [x / INDENT, y / ROW]]));

describe('treeLayout', () => {
  it('puts the current path in one column', () => {
    expect(positions(tree([turn('a', null, 0, true), turn('b', 'a', 1, true), turn('c', 'b', 2, true)]))).toEqual({ a: [0, 0], b: [0, 1], c: [0, 2] });
  });

  it('indents rewound turns below the turn they left', () => {
    const view = tree([turn('a', null, 0, true), turn('x', 'a', 1, false), turn('y', 'x', 2, false), turn('b', 'a', 1, true)]);
    expect(positions(view)).toEqual({ a: [0, 0], x: [1, 1], y: [1, 2], b: [0, 3] });
    expect(treeLayout(view).edges).toEqual([
      { from: 'a', to: 'x', onLine: false, changesColumn: true },
      { from: 'x', to: 'y', onLine: false, changesColumn: false },
      { from: 'a', to: 'b', onLine: true, changesColumn: false },
    ]);
  });

  it('puts every turn in a row of its own', () => {
    const turns = [turn('a', null, 0, true)];
    for (let index = 0; index < 40; index += 1) {
      const parent = turns[(index * 7) % turns.length]!;
      turns.push(turn(`t${index}`, parent.id, parent.depth + 1, false));
    }
    const rows = treeLayout(tree(turns)).turns.map(({ y }) => y / ROW);
    expect(rows.toSorted((a, b) => a - b)).toEqual(turns.map((_, index) => index));
  });

  it('puts a branch where it left', () => {
    const branch = { session_id: 'ses', title: 'Aside', label: null, from_message_id: 'm', turn_id: 'a', created_at: 1 };
    const layout = treeLayout(tree([turn('a', null, 0, true), turn('b', 'a', 1, true)], [branch]));
    expect(layout.branches).toEqual([{ sessionId: 'ses', title: 'Aside', turnId: 'a', x: INDENT, y: ROW }]);
    expect(layout.turns.map(({ y }) => y)).toEqual([0, 2 * ROW]);
  });

  it('handles a session of many turns', () => {
    const turns = Array.from({ length: 5000 }, (_, index) => turn(`t${index}`, index ? `t${index - 1}` : null, index, true));
    expect(treeLayout(tree(turns)).turns.at(-1)).toMatchObject({ x: 0, y: 4999 * ROW });
  });
});
