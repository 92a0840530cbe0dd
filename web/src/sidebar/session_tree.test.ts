import { expect, test } from 'vitest';
import { arrange } from './session_tree';

const session = (id: string, parent_id: string | null, updated_at: number) => ({ id, parent_id, updated_at });
const rendered = (sessions: ReturnType<typeof session>[]) => arrange(sessions).map((line) => `${'-'.repeat(line.depth)}${line.session.id}`);

test('branches are indented below their parent', () => {
  expect(rendered([session('c', 'b', 1), session('a', null, 3), session('b', 'a', 2)])).toEqual(['a', '-b', '--c']);
});

test('a tree is as recent as its newest session', () => {
  expect(rendered([session('fresh', 'old', 9), session('middle', null, 5), session('old', null, 1)])).toEqual(['old', '-fresh', 'middle']);
});

test('a branch whose parent is not listed is a root', () => {
  expect(rendered([session('b', 'gone', 2), session('a', null, 1)])).toEqual(['b', 'a']);
});

test('equal times are ordered by id, and a session given twice is listed once', () => {
  expect(rendered([session('b', null, 1), session('a', null, 1), session('b', null, 1)])).toEqual(['a', 'b']);
});

test('sessions that are each other’s parents are all listed', () => {
  expect(rendered([session('a', 'b', 2), session('b', 'a', 1), session('c', 'a', 3)])).toEqual(['a', '-c', 'b']);
});

test('an empty list stays empty', () => {
  expect(arrange([])).toEqual([]);
});
