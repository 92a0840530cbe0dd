/** Arranges sessions as trees: branches below their parents, the most recently used tree first. */

import type { Session } from '../api/types';

export interface SessionLine {
  session: Session;
  /** Number of listed ancestors. */
  depth: number;
}

type Known = Pick<Session, 'id' | 'parent_id' | 'updated_at'> & { pinned?: boolean };

/** Arrange the sessions. A branch whose parent is not listed is a root, as is a pinned one, at the top. A tree is as recent as its newest session. */
export function arrange<S extends Known>(sessions: readonly S[]): { session: S; depth: number }[] {
  const byId = new Map(sessions.map((session) => [session.id, session]));
  const children = new Map<string, S[]>();
  const roots: S[] = [];
  for (const session of byId.values()) {
    const parent = session.parent_id;
    if (parent === null || session.pinned || !byId.has(parent) || isCyclic(session, byId)) roots.push(session);
    else children.set(parent, [...(children.get(parent) ?? []), session]);
  }
  const newest = new Map<string, number>();
  const lastUpdateOf = (session: S): number => {
    const known = newest.get(session.id);
    if (known !== undefined) return known;
    const at = Math.max(session.updated_at, ...(children.get(session.id) ?? []).map(lastUpdateOf));
    newest.set(session.id, at);
    return at;
  };
  const inOrder = (some: S[]) => [...some].sort((a, b) => Number(b.pinned ?? false) - Number(a.pinned ?? false) || lastUpdateOf(b) - lastUpdateOf(a) || (a.id < b.id ? -1 : 1));
  const lines: { session: S; depth: number }[] = [];
  const walk = (some: S[], depth: number) => {
    for (const session of inOrder(some)) {
      lines.push({ session, depth });
      walk(children.get(session.id) ?? [], depth + 1);
    }
  };
  walk(roots, 0);
  return lines;
}

/** Whether the ancestors form a cycle. The server never creates one, but the list must not lose a session. */
function isCyclic<S extends Known>(session: S, byId: Map<string, S>): boolean {
  const seen = new Set<string>();
  let at: S | undefined = session;
  while (at?.parent_id && !seen.has(at.id)) {
    seen.add(at.id);
    at = byId.get(at.parent_id);
    if (at?.id === session.id) return true;
  }
  return false;
}
