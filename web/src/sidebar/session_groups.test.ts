import { expect, test } from 'vitest';
import type { Session } from '../api/types';
import { groupsOf } from './session_groups';

const NOW = new Date(2026, 5, 20, 12).getTime();
const DAY = 86_400_000;
const line = (id: string, ago: number, depth = 0, workspace_root: string | null = null) => ({ session: { id, updated_at: NOW - ago, workspace_root } as Session, depth });
const brief = (groups: ReturnType<typeof groupsOf>) => groups.map(({ name, lines }) => [name, ...lines.map(({ session }) => session.id)]);

test('by date, a tree is grouped by its newest session', () => {
  const lines = [line('a', 0), line('b', 3 * DAY), line('b1', 3600_000, 1), line('c', 13 * 3600_000), line('d', 5 * DAY), line('e', 20 * DAY), line('f', 60 * DAY), line('g', 400 * DAY)];
  expect(brief(groupsOf(lines, 'date', NOW))).toEqual([
    ['Today', 'a', 'b', 'b1'],
    ['Yesterday', 'c'],
    ['The last 7 days', 'd'],
    ['The last 30 days', 'e'],
    ['April 2026', 'f'],
    ['May 2025', 'g'],
  ]);
});

test('by folder, two folders of one name are two groups, and sessions without one have their own', () => {
  const lines = [line('a', 0, 0, '/x/app'), line('b', 1, 0, '/y/app'), line('c', 2), line('d', 3, 0, '/x/app')];
  expect(groupsOf(lines, 'folder', NOW).map(({ name, title, lines: some }) => [name, title, some.length])).toEqual([
    ['app', '/x/app', 2],
    ['app', '/y/app', 1],
    ['No folder', undefined, 1],
  ]);
});
