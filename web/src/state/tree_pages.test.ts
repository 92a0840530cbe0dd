import { describe, expect, it } from 'vitest';
import type { TreeTurn, TreeView } from '../api/types';
import { isOver, joinTree } from './tree_pages';

const turn = (id: string, parent: string | null, onLine = true): TreeTurn => ({
  id,
  parent_turn_id: parent,
  kind: 'normal',
  status: 'completed',
  created_at: Number(id),
  settled_at: null,
  depth: 0,
  origin_turn_id: null,
  on_line: onLine,
  is_head: false,
  text: id,
  messages: [],
});
const page = (head: string, turns: TreeTurn[], next_cursor: string | null, branches: TreeView['branches'] = []): TreeView => ({ session_id: 's', head_turn_id: head, open_turn_id: null, turns, branches, next_cursor });
const line = (tree: TreeView) => tree.turns.map(({ id, on_line, is_head }) => `${id}${on_line ? '' : '-'}${is_head ? '!' : ''}`).join(' ');
const branch = (id: string, turn_id: string | null) => ({ session_id: id, title: id, label: null, from_message_id: null, turn_id, created_at: 1 });

describe('isOver', () => {
  it('follows the status of the message’s turn, and is false for an unknown turn', () => {
    const tree = page('2', [turn('1', null), { ...turn('2', '1'), status: 'running' }], null);
    const of = (turn_id?: string) => isOver(tree, { id: 'm', role: 'assistant', parts: [], metadata: { turn_id } });
    expect([of('1'), of('2'), of('3'), of(), isOver(null, undefined)]).toEqual([true, false, false, false, false]);
  });
});

describe('joinTree', () => {
  it('merges an older page', () => {
    const newest = joinTree(null, page('4', [turn('3', '2'), turn('4', '3')], '3'));
    const whole = joinTree(newest, page('4', [turn('1', null), turn('2', '1')], null), true);
    expect([line(newest), line(whole), whole.next_cursor]).toEqual(['3 4!', '1 2 3 4!', null]);
  });

  it('recomputes the current path when the head moves, also on older pages', () => {
    const known = joinTree(null, page('4', [turn('1', null), turn('2', '1'), turn('3', '2'), turn('4', '3')], null));
    expect(line(joinTree(known, page('5', [turn('4', '3', false), turn('5', '2')], '4')))).toBe('1 2 3- 4- 5!');
    expect(line(joinTree(known, page('1', [turn('4', '3', false)], '4')))).toBe('1! 2- 3- 4-');
  });

  it('drops the known tree if turns may be missing', () => {
    const known = joinTree(null, page('2', [turn('1', null), turn('2', '1')], null));
    const joined = joinTree(known, page('9', [turn('8', '7'), turn('9', '8')], '8'));
    expect([line(joined), joined.next_cursor]).toEqual(['8 9!', '8']);
  });

  it('drops deleted branches of the turns of a page', () => {
    const known = joinTree(null, page('2', [turn('1', null), turn('2', '1')], null, [branch('a', '1'), branch('b', '2'), branch('c', null)]));
    const joined = joinTree(known, page('2', [turn('2', '1')], '2', [branch('d', '2')]));
    expect(joined.branches.map((one) => one.session_id)).toEqual(['a', 'c', 'd']);
  });
});
