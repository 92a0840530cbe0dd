/** The list of sessions as a tree: branches under the session they left, the liveliest tree first. */

import type { Session } from '../api/types';

export interface SessionLine {
  session: Session;
  /** How many of its ancestors are listed. */
  depth: number;
}

type Known = Pick<Session, 'id' | 'parent_id' | 'updated_at'> & { pinned?: boolean };

/** A branch whose parent is not listed stands by itself, and so does one that is pinned, above all others. A tree is as new as the newest session in it. */
export function arrange<S extends Known>(sessions: readonly S[]): { session: S; depth: number }[] {
  const byId = new Map(sessions.map((session) => [session.id, session]));
  const children = new Map<string, S[]>();
  const roots: S[] = [];
  for (const session of byId.values()) {
    const parent = session.parent_id;
    if (parent === null || session.pinned || !byId.has(parent) || leadsBack(session, byId)) roots.push(session);
    else children.set(parent, [...(children.get(parent) ?? []), session]);
  }
  const newest = new Map<string, number>();
  const freshness = (session: S): number => {
    const known = newest.get(session.id);
    if (known !== undefined) return known;
    const at = Math.max(session.updated_at, ...(children.get(session.id) ?? []).map(freshness));
    newest.set(session.id, at);
    return at;
  };
  const inOrder = (some: S[]) => [...some].sort((a, b) => Number(b.pinned ?? false) - Number(a.pinned ?? false) || freshness(b) - freshness(a) || (a.id < b.id ? -1 : 1));
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

/** Whether its ancestors come back to it. The server makes no such thing, but a list must never lose a session. */
function leadsBack<S extends Known>(session: S, byId: Map<string, S>): boolean {
  const seen = new Set<string>();
  let at: S | undefined = session;
  while (at?.parent_id && !seen.has(at.id)) {
    seen.add(at.id);
    at = byId.get(at.parent_id);
    if (at?.id === session.id) return true;
  }
  return false;
}
