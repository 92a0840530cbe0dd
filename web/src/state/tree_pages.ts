/** Merges pages of the tree: the newest turns are reloaded with every change, older ones on demand. */

import type { Message, TreeTurn, TreeView } from '../api/types';

const OPEN = new Set(['running', 'retrying', 'compacting', 'waiting']);

/** Whether the turn of a message is known to have ended. */
export function isOver(tree: TreeView | null, message: Message | undefined): boolean {
  const id = message?.metadata?.turn_id;
  const turn = id === undefined ? undefined : tree?.turns.findLast((candidate) => candidate.id === id);
  return turn !== undefined && !OPEN.has(turn.status);
}

/**
 * Merge a page into the known tree. Without `older` it is the newest page; if turns may be missing between the two, the known
 * tree is dropped. The current path is computed from its head, so that older pages need not be reloaded.
 */
export function joinTree(known: TreeView | null, page: TreeView, older = false): TreeView {
  const joins = known !== null && (older || page.next_cursor == null || known.turns.some((turn) => turn.id >= page.next_cursor!));
  const turns = new Map<string, TreeTurn>();
  for (const turn of joins ? known.turns : []) turns.set(turn.id, turn);
  for (const turn of page.turns) if (!older || !turns.has(turn.id)) turns.set(turn.id, turn);
  const end = older && known ? known : page;
  const whole = page.next_cursor == null;
  const here = new Set(page.turns.map((turn) => turn.id));
  const branches = (joins ? known.branches : []).filter((branch) => (branch.turn_id === null ? !whole : !here.has(branch.turn_id)));
  return {
    ...page,
    head_turn_id: end.head_turn_id,
    open_turn_id: end.open_turn_id,
    turns: inOrder(marked(turns, end)),
    branches: [...branches, ...page.branches].sort((one, other) => one.created_at - other.created_at),
    next_cursor: older || !joins ? page.next_cursor : known.next_cursor,
  };
}

/** Mark the turns on the current path; unchanged turns stay the same objects. */
function marked(turns: Map<string, TreeTurn>, { head_turn_id: head, open_turn_id: open }: TreeView): Map<string, TreeTurn> {
  const line = new Set<string>();
  for (let at = turns.get(open ?? head ?? ''); at; at = turns.get(at.parent_turn_id ?? '')) line.add(at.id);
  const result = new Map<string, TreeTurn>();
  for (const [id, turn] of turns) {
    const onLine = line.has(id);
    result.set(id, turn.on_line === onLine && turn.is_head === (id === head) ? turn : { ...turn, on_line: onLine, is_head: id === head });
  }
  return result;
}

/** Return the turns depth first, older siblings first. */
function inOrder(turns: Map<string, TreeTurn>): TreeTurn[] {
  const below = new Map<string | null, TreeTurn[]>();
  const newest = [...turns.values()].sort((one, other) => other.created_at - one.created_at || (one.id < other.id ? 1 : -1));
  for (const turn of newest) {
    const parent = turn.parent_turn_id !== null && turns.has(turn.parent_turn_id) ? turn.parent_turn_id : null;
    const siblings = below.get(parent);
    if (siblings) siblings.push(turn);
    else below.set(parent, [turn]);
  }
  const order: TreeTurn[] = [];
  const ahead = below.get(null) ?? [];
  for (let turn = ahead.pop(); turn; turn = ahead.pop()) {
    order.push(turn);
    ahead.push(...(below.get(turn.id) ?? []));
  }
  return order;
}
