"""Adoption: what other programs wrote into the three tables, taken in as turns of a session. Pure.

Other programs know no turns: their conversation is the messages of a session by time, without those that are hidden.
So a prompt begins a turn below the head, and what follows belongs to it; a marker is a compaction; what is hidden at
the end of a line is a rewind; a prompt that is queued waits in a paused queue. Their text and ids are left as they are.

What was taken in may still grow, and so it is not sealed before something follows it. What cannot be understood is
left where it is, and the judge names it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from clew.ids import Mint, is_shared_id
from clew.store import unit as u
from clew.transcript.line import line_messages
from clew.transcript.message import MessageRow
from clew.transcript.metadata import PAUSED_KEY, cancelled, projection_of
from clew.transcript.part import COMPACTION_PART
from clew.transcript.projection import Hidden, hidden_messages, kept_tails_of
from clew.transcript.rollup import sum_usage
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn, TurnKind, place_below
from clew.transcript.usage import Usage

__all__ = ["Adoption", "Shared", "plan_adoption"]

_NOT_CANCELLED_BY_CLEW = "hidden by another program"


class Shared(msgspec.Struct, frozen=True):
    """A session as other programs may have left it.

    ``rows`` are its messages by (created_at, id), with their parts where they are named here or in a compaction.
    ``loose`` are in no turn and not in the queue. ``growing`` were taken in before and are not sealed. ``sealed`` are
    those of the queue that are, ``unread`` those of all that do not read.
    """

    session: Session
    tree: Tree
    rows: Mapping[str, MessageRow]
    queue: Mapping[str, u.Enqueue]
    loose: frozenset[str]
    growing: frozenset[str]
    sealed: frozenset[str] = frozenset()
    unread: frozenset[str] = frozenset()


class Adoption(msgspec.Struct, frozen=True):
    """What is to be written. ``growing`` are the messages that are taken in and not sealed, once it is.

    ``waits``: something is there that cannot be taken in before the open turn has settled.
    """

    writes: tuple[u.Write, ...]
    growing: frozenset[str]
    usage: Usage
    waits: bool = False


def plan_adoption(shared: Shared, mint: Mint) -> Adoption:
    """What it takes for the session to hold everything that others wrote into it; no writes when it does."""
    walk = _Walk(shared, mint)
    loose = walk.loose()
    open_turn = shared.tree.turns.get(shared.tree.open_turn_id or "")
    if open_turn is None:
        marked = max((at for at, row in enumerate(loose) if _is_marker(row)), default=-1)
        if marked < 0:
            walk.take_back()
        for at, row in enumerate(loose):
            walk.take(row, hidden=at > marked and _hidden_at(row) is not None)
        walk.end_hidden()
        walk.pause()
        walk.project()
    walk.seal(walk.head if open_turn is None else open_turn.id)
    waits = open_turn is not None and (bool(loose) or walk.hidden_end()[1] is not None)
    return Adoption(tuple(walk.writes), frozenset(walk.growing), sum_usage(shared.rows.values()), waits)


def _hidden_at(row: MessageRow) -> int | None:
    at, by = projection_of(row.metadata)
    return at if isinstance(at, int) and by != "compaction" else None


def _waits(row: MessageRow, place: u.Enqueue) -> bool:
    return row.queued_at == place.queued_at and projection_of(row.metadata)[0] is None


def _is_marker(row: MessageRow) -> bool:
    return any(part.type == COMPACTION_PART for part in row.parts)


class _Walk:
    """Goes along a session's messages and takes them in; ``turns``, ``links``, ``moves`` and ``head`` keep up."""

    def __init__(self, shared: Shared, mint: Mint) -> None:
        self.shared = shared
        self.mint = mint
        self.writes: list[u.Write] = []
        self.growing = set(shared.growing)
        tree = shared.tree
        self.turns, self.head = dict(tree.turns), tree.head_turn_id
        self.links = {turn_id: list(held) for turn_id, held in tree.links.items()}
        self.moves = list(tree.moves)
        self.parents = {turn.parent_turn_id for turn in self.turns.values()}
        self.queue = dict(shared.queue)
        self.taken: set[str] = set()
        # The head, how much its turn held, and since when, before what is hidden began.
        self.before: tuple[str | None, int, int] | None = None

    @property
    def _tree(self) -> Tree:
        links = {turn_id: tuple(held) for turn_id, held in self.links.items()}
        return Tree(self.head, self.shared.tree.open_turn_id, self.turns, links, tuple(self.moves))

    def loose(self) -> list[MessageRow]:
        """Messages that are to be taken in: in no turn and not in the queue, or that another program took from it."""
        rows = self.shared.rows
        left = {id_ for id_, place in self.queue.items() if id_ in rows and not _waits(rows[id_], place)}
        wanted = (self.shared.loose | left) - self.shared.unread
        return [row for row in rows.values() if row.id in wanted and not row.is_cancelled and is_shared_id(row.id)]

    def hidden_end(self) -> tuple[list[tuple[Turn, MessageRow | None]], int | None]:
        """The line, and where in it begins what others hid at its end."""
        line = [(turn, self.shared.rows.get(id_)) for turn, id_ in line_messages(self._tree)]
        known = hidden_messages(self._tree, kept_tails_of(self._tree, self.shared.rows))
        first: int | None = None
        for at in reversed(range(len(line))):
            row = line[at][1]
            if row is None or row.id in known or _hidden_at(row) is None:
                break
            first = at
        return line, first

    def take_back(self) -> None:
        """What others hid at the end of the line is off it: the head moves back to what comes before."""
        line, first = self.hidden_end()
        # A marker stands in the line where it counts, and by its time elsewhere: one that was hidden along is shown.
        self.taken.update(one.id for turn, one in line if one is not None and turn.kind == "compaction")
        if first is None:
            return
        turn, row = line[first]
        hidden_at = None if row is None else _hidden_at(row)
        if row is not None and hidden_at is not None:
            along = (one for _, one in line if one is not None and _hidden_at(one) == hidden_at)
            self.taken.update(one.id for one in (*along, *(one for _, one in line[first:] if one is not None)))
            self._go_back(turn, self.links[turn.id].index(row.id), hidden_at)

    def take(self, row: MessageRow, *, hidden: bool) -> None:
        """Take one message in, behind those before it."""
        queued = row.id in self.queue
        if queued:
            self.writes.append(u.Dequeue(row.id))
            del self.queue[row.id]
        at = _hidden_at(row)
        if at is not None and (queued or row.queued_at is not None or projection_of(row.metadata)[1] == "cancelled"):
            noted = cancelled(at, _NOT_CANCELLED_BY_CLEW)
            self.writes.append(u.PatchMessage(row.id, row.updated_at, noted, ("queued_at",)))
            return
        self.taken.add(row.id)
        if row.id not in self.shared.sealed:
            self.growing.add(row.id)
        if row.is_prompt and row.queued_at is not None:
            waits = u.Enqueue(row.id, row.queued_at)
            self.writes.append(waits)
            self.queue[row.id] = waits
            return
        if not hidden:
            self.end_hidden()
        elif self.before is None and at is not None:
            self.before = (self.head, len(self.links.get(self.head or "", ())), at)
        turn = self.turns.get(self.head or "")
        if _is_marker(row):
            turn = self._begin(row, "compaction")
        elif row.is_prompt or turn is None or turn.kind == "compaction" or turn.id in self.parents:
            # What comes late, after others went on from that turn and were taken back, stands beside those: else it
            # would come before them once they are shown again, and by its time it comes behind.
            turn = self._begin(row, "normal")
        elif turn.status == "unanswered" and row.role == "assistant":
            # By way of running: the table of states knows no other.
            self.writes.append(u.SetTurn(turn.id, "running"))
            self.writes.append(u.SetTurn(turn.id, "completed", settled_at=row.updated_at))
            turn = self.turns[turn.id] = msgspec.structs.replace(turn, status="completed", settled_at=row.updated_at)
        self._link(turn, row.id)

    def end_hidden(self) -> None:
        """What is hidden has ended: the head goes back to where it was before that."""
        if self.before is None:
            return
        (head, held, at), self.before = self.before, None
        turn = self.turns.get(head or "")
        if turn is None or len(self.links[turn.id]) == held:
            self._move(head, at, "rewind")
        else:
            self._go_back(turn, held, at)

    def _go_back(self, turn: Turn, held: int, at: int) -> None:
        """Before what a turn holds from ``held`` on: to its parent, or to a sibling that holds what came before."""
        kept = self.links[turn.id][:held]
        if not kept:
            self._move(turn.parent_turn_id, at, "rewind")
            return
        rows = [self.shared.rows[id_] for id_ in kept if id_ in self.shared.rows]
        answered = any(row.role == "assistant" for row in rows)
        sibling = Turn(
            id=self.mint.turn(),
            session_id=self.shared.session.id,
            parent_turn_id=turn.parent_turn_id,
            created_at=at,
            status="completed" if answered else "unanswered",
            settled_at=at,
        )
        self._open(sibling)
        for message_id in kept:
            self._link(sibling, message_id)
        self._move(sibling.id, at, "rewind")

    def _begin(self, row: MessageRow, kind: TurnKind) -> Turn:
        turn = Turn(
            id=self.mint.turn(),
            session_id=self.shared.session.id,
            parent_turn_id=self.head,
            created_at=row.created_at,
            kind=kind,
            status="unanswered" if row.role == "user" else "completed",
            settled_at=row.updated_at,
        )
        self._open(turn)
        self._move(turn.id, row.created_at, "compaction" if kind == "compaction" else "turn")
        return turn

    def _open(self, turn: Turn) -> None:
        turn = place_below(turn, self.turns.get(turn.parent_turn_id or ""))
        self.turns[turn.id], self.links[turn.id] = turn, []
        self.parents.add(turn.parent_turn_id)
        self.writes.append(u.OpenTurn(turn))

    def _link(self, turn: Turn, message_id: str) -> None:
        self.links[turn.id].append(message_id)
        self.writes.append(u.LinkMessage(turn.id, message_id))

    def _move(self, turn_id: str | None, at: int, why: MoveReason) -> None:
        self.moves.append(HeadMove(len(self.moves) + 1, self.shared.session.id, self.head, turn_id, at, why))
        self.head = turn_id
        self.writes.append(u.MoveHead(turn_id, at, why))

    def pause(self) -> None:
        """What others queued waits for a person's word; a queue that others emptied is not paused."""
        paused = self.shared.session.paused_by
        if self.queue.keys() - self.shared.queue.keys() and paused is None:
            self.writes.append(u.PatchSession(metadata={PAUSED_KEY: "restart"}))
        elif self.shared.queue and not self.queue and paused is not None:
            self.writes.append(u.PatchSession(drop=(PAUSED_KEY,)))

    def project(self) -> None:
        """Bring the projections of what was taken in, and of what that changed, to what the tree says now."""
        tree, old = self._tree, self.shared.tree
        tails = kept_tails_of(tree, self.shared.rows)
        before, after = hidden_messages(old, kept_tails_of(old, self.shared.rows)), hidden_messages(tree, tails)
        changed = self.taken | {id_ for id_ in {**before, **after} if before.get(id_) != after.get(id_)}
        hidden: dict[str, Hidden | None] = {}
        for id_ in sorted(changed & self.shared.rows.keys() - self.queue.keys()):
            one = after.get(id_)
            if projection_of(self.shared.rows[id_].metadata) != ((one.at, one.by) if one else (None, None)):
                hidden[id_] = one
        if hidden:
            self.writes.append(u.SetHidden(hidden))

    def seal(self, end: str | None) -> None:
        """Seal what was taken in and has something behind it; the turns of the rest settled when it last grew.

        A marker does not grow, and when its turn settled is told in what it covers.
        """
        turn = self.turns.get(end or "")
        is_marker = turn is not None and turn.kind == "compaction"
        last = self.queue.keys() | (set() if is_marker else set(self.links.get(end or "", ())))
        for id_ in sorted(self.growing - last):
            row = self.shared.rows.get(id_)
            if row is not None and id_ not in self.shared.unread:
                self.writes.append(u.SealMessage(id_, row.seal))
                self.growing.discard(id_)
        if turn is None or turn.settled_at is None or is_marker:
            return
        grown = [self.shared.rows[id_] for id_ in self.links[turn.id] if id_ in self.growing & self.shared.rows.keys()]
        newest = max((part.updated_at for row in grown for part in row.parts), default=0)
        if newest > turn.settled_at:
            self.writes.append(u.SetTurn(turn.id, None, settled_at=newest))
