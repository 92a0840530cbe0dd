import { describe, expect, it } from 'vitest';
import type { TreeTurn, TreeView } from '../api/types';
import { rewoundGroups, versionsIn } from './rewound';

let clock = 0;
function turn(id: string, parent: string | null, onLine: boolean, messages: string[], status: TreeTurn['status'] = 'completed'): TreeTurn {
  clock += 1;
  return { id, parent_turn_id: parent, kind: 'normal', status, created_at: clock, settled_at: clock, depth: 0, origin_turn_id: null, on_line: onLine, is_head: false, text: id, messages };
}
const tree = (turns: TreeTurn[], open: string | null = null): TreeView => ({ session_id: 's', head_turn_id: null, open_turn_id: open, turns, branches: [] });
const short = (view: TreeView) => rewoundGroups(view).map(({ root, after, hidden, tip, turns }) => ({ root, after, hidden, tip, turns: turns.length }));

describe('rewoundGroups', () => {
  it('finds nothing without a rewind', () => {
    expect(rewoundGroups(null)).toEqual([]);
    expect(short(tree([turn('a', null, true, ['1', '2'])]))).toEqual([]);
  });

  it('groups rewound turns, with the newest end as the tip', () => {
    const view = tree([turn('a', null, true, ['1', '2']), turn('b', 'a', false, ['3', '4']), turn('c', 'b', false, ['5', '6', '7'])]);
    expect(short(view)).toEqual([{ root: 'b', after: 'a', hidden: 5, tip: 'c', turns: 2 }]);
  });

  it('groups turns that left after the same turn', () => {
    const view = tree([turn('a', null, true, ['1']), turn('b', 'a', false, ['2']), turn('c', 'a', false, ['3']), turn('d', 'b', false, ['4'])]);
    expect(short(view)).toEqual([{ root: 'b', after: 'a', hidden: 3, tip: 'd', turns: 3 }]);
  });

  it('puts turns without a parent at the beginning', () => {
    expect(short(tree([turn('a', null, false, ['1', '2'])]))).toEqual([{ root: 'a', after: null, hidden: 2, tip: 'a', turns: 1 }]);
  });

  it('does not count a message on the current path', () => {
    const view = tree([turn('a', null, false, ['1', '2']), turn('b', null, true, ['1', '3'])]);
    expect(short(view)).toEqual([{ root: 'a', after: null, hidden: 1, tip: 'a', turns: 1 }]);
  });

  it('omits refused and running turns', () => {
    const view = tree([turn('a', null, true, ['1']), turn('b', 'a', false, ['2'], 'refused'), turn('c', 'a', false, ['3'], 'running')], 'c');
    expect(short(view)).toEqual([]);
  });
});

describe('versionsIn', () => {
  it('finds the versions of a turn, oldest first, with their ends', () => {
    const view = tree([turn('a', null, true, ['1', '2']), turn('b', 'a', false, ['3', '4']), turn('c', 'a', true, ['5', '6']), turn('d', 'a', false, ['7']), turn('e', 'b', false, ['8'])]);
    expect([...versionsIn(view)]).toEqual([['5', { roots: ['b', 'c', 'd'], tips: ['e', 'c', 'd'], at: 1 }]]);
    expect(versionsIn(view)).toBe(versionsIn(view));
  });

  it('skips summaries, and omits refused and unanswered turns', () => {
    const carried: TreeTurn = { ...turn('s', 'a', true, ['m']), kind: 'compaction' };
    const view = tree([turn('a', null, true, ['1']), turn('b', 'a', false, ['2']), carried, turn('c', 's', true, ['2', '3']), turn('d', 'a', false, ['4'], 'refused'), turn('e', 'a', false, ['2'], 'unanswered')]);
    expect([...versionsIn(view)]).toEqual([['2', { roots: ['b', 'c'], tips: ['b', 'c'], at: 1 }]]);
  });

  it('finds none for a single version', () => {
    expect(versionsIn(null).size).toBe(0);
    expect(versionsIn(tree([turn('a', null, true, ['1']), turn('b', 'a', true, ['2'])])).size).toBe(0);
  });
});
