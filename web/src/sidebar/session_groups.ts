/** Groups the session list by the last activity of a tree of sessions, or by folder. */

import type { Session } from '../api/types';
import type { SessionLine } from './session_tree';

export type GroupBy = 'date' | 'folder';

export interface SessionGroup {
  name: string;
  /** The full path of a shortened name. */
  title?: string;
  lines: SessionLine[];
}

const DAY_MS = 86_400_000;

/** Group the lines. A tree stays in the group of its root; groups are in the order of the lines. */
export function groupsOf(lines: readonly SessionLine[], by: GroupBy, now: number): SessionGroup[] {
  const groups = new Map<string, SessionGroup>();
  let current: SessionGroup | undefined;
  lines.forEach((line, index) => {
    if (line.depth === 0) {
      const updatedAt = by === 'date' ? lastUpdateIn(lines, index) : 0;
      const { name, title }: { name: string; title?: string } = line.session.pinned ? { name: 'Pinned' } : by === 'date' ? { name: dayOf(updatedAt, now) } : folderOf(line.session);
      const key = title ?? name;
      current = groups.get(key) ?? { name, ...(title ? { title } : {}), lines: [] };
      groups.set(key, current);
    }
    current?.lines.push(line);
  });
  return [...groups.values()];
}

function lastUpdateIn(lines: readonly SessionLine[], root: number): number {
  let at = lines[root]!.session.updated_at;
  for (let index = root + 1; index < lines.length && lines[index]!.depth > 0; index += 1) at = Math.max(at, lines[index]!.session.updated_at);
  return at;
}

function dayOf(at: number, now: number): string {
  const midnight = new Date(now);
  midnight.setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight.getTime() - at) / DAY_MS);
  if (days <= 0) return 'Today';
  if (days === 1) return 'Yesterday';
  if (days <= 7) return 'The last 7 days';
  if (days <= 30) return 'The last 30 days';
  return new Date(at).toLocaleDateString('en', { month: 'long', year: 'numeric' });
}

function folderOf({ workspace_root: root }: Pick<Session, 'workspace_root'>): { name: string; title?: string } {
  if (!root) return { name: 'No folder' };
  return { name: root.split(/[\\/]/).filter(Boolean).at(-1) ?? root, title: root };
}
