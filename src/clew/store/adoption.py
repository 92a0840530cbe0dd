"""Adoption: turning what other programs wrote into the three tables into turns of a session. Pure, no I/O.

Other programs have no turns: to them a conversation is the messages of a session by time, without the hidden ones. So a
prompt begins a turn below the head and the messages after it belong to that turn; a marker becomes a compaction; hidden
messages at the end of a line become a rewind; a queued prompt is put into a paused queue. Texts and ids are not
changed.

An adopted message may still grow, so it is sealed only once another message follows it. What cannot be interpreted is
left alone, and the judge reports it.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from clew.ids import Mint, is_shared_id
from clew.store import unit as u
from clew.transcript.line import line_messages
from clew.transcript.message import MessageRow
from clew.transcript.metadata import PAUSED_KEY, cancelled, projection_of
from clew.transcript.model_call import sum_usage
from clew.transcript.part import COMPACTION_PART
from clew.transcript.projection import Hidden, compaction_tails, hidden_messages
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn, TurnKind, with_parent
from clew.transcript.usage import Usage

__all__ = ["Adoption", "Shared", "plan_adoption"]

_NOT_CANCELLED_BY_CLEW = "hidden by another program"


class Shared(msgspec.Struct, frozen=True):
    """A session as other programs may have left it.

    ``rows`` are its messages by (created_at, id), with their parts where they are named below or belong to a
    compaction. ``loose`` messages are in no turn and not in the queue. ``growing`` messages were adopted before and are
    not sealed yet. ``sealed`` are the queued messages that are sealed, ``unread`` the messages that cannot be decoded.
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
    """The writes that adopt the changes. ``growing`` are the adopted messages that are still unsealed afterwards.

    ``waits``: something cannot be adopted before the open turn settles.
    """

    writes: tuple[u.Write, ...]
    growing: frozenset[str]
    usage: Usage
    waits: bool = False


def plan_adoption(shared: Shared, mint: Mint) -> Adoption:
    """Return the writes that bring everything other programs wrote into the session; none when it is up to date."""
    walk = _Walk(shared, mint)
    loose = walk.loose()
    open_turn = shared.tree.turns.get(shared.tree.open_turn_id or "")
    if open_turn is None:
        walk.show_again()
        last_marker = max((at for at, row in enumerate(loose) if _is_marker(row)), default=-1)
        if last_marker < 0:
            walk.rewind_hidden()
        for at, row in enumerate(loose):
            walk.adopt(row, hidden=at > last_marker and _hidden_at(row) is not None)
        walk.close_hidden()
        walk.pause()
        walk.project()
    walk.seal(walk.head if open_turn is None else open_turn.id)
    waits = open_turn is not None and (bool(loose) or walk.find_hidden_end()[1] is not None)
    return Adoption(tuple(walk.writes), frozenset(walk.growing), sum_usage(shared.rows.values()), waits)


def _hidden_at(row: MessageRow) -> int | None:
    at, by = projection_of(row.metadata)
    return at if isinstance(at, int) and by != "compaction" else None


def _is_waiting(row: MessageRow, entry: u.Enqueue) -> bool:
    return row.queued_at == entry.queued_at and projection_of(row.metadata)[0] is None


def _is_marker(row: MessageRow) -> bool:
    return any(part.type == COMPACTION_PART for part in row.parts)


class _Walk:
    """Walks over a session's messages and adopts them, updating ``turns``, ``links``, ``moves`` and ``head`` on the
    way."""

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
        self.touched: set[str] = set()
        # The head, the number of messages in its turn, and the time, all as of before the hidden messages began.
        self.hidden_from: tuple[str | None, int, int] | None = None

    @property
    def _tree(self) -> Tree:
        links = {turn_id: tuple(held) for turn_id, held in self.links.items()}
        return Tree(self.head, self.shared.tree.open_turn_id, self.turns, links, tuple(self.moves))

    def loose(self) -> list[MessageRow]:
        """Return the messages to adopt: in no turn and not queued, or taken out of the queue by another program."""
        rows = self.shared.rows
        left = {id_ for id_, entry in self.queue.items() if id_ in rows and not _is_waiting(rows[id_], entry)}
        wanted = (self.shared.loose | left) - self.shared.unread
        return [row for row in rows.values() if row.id in wanted and not row.is_cancelled and is_shared_id(row.id)]

    def find_hidden_end(self) -> tuple[list[tuple[Turn, MessageRow | None]], int | None]:
        """Return the line, and the position where the messages hidden by other programs at its end begin."""
        line = [(turn, self.shared.rows.get(id_)) for turn, id_ in line_messages(self._tree)]
        known = hidden_messages(self._tree, compaction_tails(self._tree, self.shared.rows))
        first: int | None = None
        for at in reversed(range(len(line))):
            row = line[at][1]
            if row is None or row.id in known or _hidden_at(row) is None:
                break
            first = at
        return line, first

    def show_again(self) -> None:
        """Move the head forward to turns of which other programs show all messages again; never a damaged head."""
        if self.head != (self.moves[-1].to_turn_id if self.moves else None):
            return
        children: dict[str | None, list[Turn]] = {}
        for turn in self.turns.values():
            if turn.status != "refused":
                children.setdefault(turn.parent_turn_id, []).append(turn)
        head, at = self.head, 0
        passed = {head}  # damaged turns may form a cycle
        while True:
            held = self.links.get(head or "", [])
            found = [(turn, self.links[turn.id]) for turn in children.get(head, ())]
            if head is not None and head in self.turns:
                # A turn of which only the beginning was left has a sibling with the rest.
                siblings = children.get(self.turns[head].parent_turn_id, ())
                longer = [turn for turn in siblings if self.links[turn.id][: len(held)] == held]
                found += [(turn, self.links[turn.id][len(held) :]) for turn in longer]
            shown = [(turn, ids) for turn, ids in found if turn.id not in passed and self._are_shown(ids)]
            if not shown:
                break
            turn, ids = max(shown, key=lambda one: (one[0].created_at, one[0].id))
            passed.add(turn.id)
            head, at = turn.id, max(at, *(self.shared.rows[id_].updated_at for id_ in ids))
            self.touched.update(ids)
        if head is not None and head != self.head:
            self._move(head, at, "unrewind")

    def _are_shown(self, message_ids: list[str]) -> bool:
        rows = [self.shared.rows.get(id_) for id_ in message_ids]
        return bool(rows) and all(row is not None and projection_of(row.metadata) == (None, None) for row in rows)

    def rewind_hidden(self) -> None:
        """Move the head back to before the messages that other programs hid at the end of the line."""
        line, first = self.find_hidden_end()
        # A marker's position in the line is where it takes effect, not its time. One that was hidden along with others
        # is shown again.
        self.touched.update(one.id for turn, one in line if one is not None and turn.kind == "compaction")
        if first is None:
            return
        turn, row = line[first]
        hidden_at = None if row is None else _hidden_at(row)
        if row is not None and hidden_at is not None:
            along = (one for _, one in line if one is not None and _hidden_at(one) == hidden_at)
            self.touched.update(one.id for one in (*along, *(one for _, one in line[first:] if one is not None)))
            self._rewind_to(turn, self.links[turn.id].index(row.id), hidden_at)

    def adopt(self, row: MessageRow, *, hidden: bool) -> None:
        """Adopt one message, after those before it."""
        queued = row.id in self.queue
        if queued:
            self.writes.append(u.Dequeue(row.id))
            del self.queue[row.id]
        at = _hidden_at(row)
        if at is not None and (queued or row.queued_at is not None or projection_of(row.metadata)[1] == "cancelled"):
            noted = cancelled(at, _NOT_CANCELLED_BY_CLEW)
            self.writes.append(u.PatchMessage(row.id, row.updated_at, noted, ("queued_at",)))
            return
        self.touched.add(row.id)
        if row.id not in self.shared.sealed:
            self.growing.add(row.id)
        if row.is_prompt and row.queued_at is not None:
            waits = u.Enqueue(row.id, row.queued_at)
            self.writes.append(waits)
            self.queue[row.id] = waits
            return
        if not hidden:
            self.close_hidden()
        elif self.hidden_from is None and at is not None:
            self.hidden_from = (self.head, len(self.links.get(self.head or "", ())), at)
        turn = self.turns.get(self.head or "")
        if _is_marker(row):
            turn = self._begin_turn(row, "compaction")
        elif row.is_prompt or turn is None or turn.kind == "compaction" or turn.id in self.parents:
            # A late message, written after other turns followed this one and were rewound, gets a sibling turn. Inside
            # this turn it would precede them once they are shown again, although it is newer.
            turn = self._begin_turn(row, "normal")
        elif turn.status == "unanswered" and row.role == "assistant":
            # The state table only allows this by way of running.
            self.writes.append(u.SetTurn(turn.id, "running"))
            self.writes.append(u.SetTurn(turn.id, "completed", settled_at=row.updated_at))
            turn = self.turns[turn.id] = msgspec.structs.replace(turn, status="completed", settled_at=row.updated_at)
        self._link(turn, row.id)

    def close_hidden(self) -> None:
        """Move the head back to where it was before the hidden messages, which have ended."""
        if self.hidden_from is None:
            return
        (head, held, at), self.hidden_from = self.hidden_from, None
        turn = self.turns.get(head or "")
        if turn is None or len(self.links[turn.id]) == held:
            self._move(head, at, "rewind")
        else:
            self._rewind_to(turn, held, at)

    def _rewind_to(self, turn: Turn, held: int, at: int) -> None:
        """Move the head to before the messages of a turn from ``held`` on: to its parent, or to a new sibling that
        holds the earlier messages."""
        remaining = self.links[turn.id][:held]
        if not remaining:
            self._move(turn.parent_turn_id, at, "rewind")
            return
        rows = [self.shared.rows[id_] for id_ in remaining if id_ in self.shared.rows]
        answered = any(row.role == "assistant" for row in rows)
        sibling = Turn(
            id=self.mint.turn(),
            session_id=self.shared.session.id,
            parent_turn_id=turn.parent_turn_id,
            created_at=at,
            status="completed" if answered else "unanswered",
            settled_at=at,
        )
        self._open_turn(sibling)
        for message_id in remaining:
            self._link(sibling, message_id)
        self._move(sibling.id, at, "rewind")

    def _begin_turn(self, row: MessageRow, kind: TurnKind) -> Turn:
        turn = Turn(
            id=self.mint.turn(),
            session_id=self.shared.session.id,
            parent_turn_id=self.head,
            created_at=row.created_at,
            kind=kind,
            status="unanswered" if row.role == "user" else "completed",
            settled_at=row.updated_at,
        )
        self._open_turn(turn)
        self._move(turn.id, row.created_at, "compaction" if kind == "compaction" else "turn")
        return turn

    def _open_turn(self, turn: Turn) -> None:
        turn = with_parent(turn, self.turns.get(turn.parent_turn_id or ""))
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
        """Pause the queue when other programs added to it, until a user continues it; unpause one they emptied."""
        paused = self.shared.session.paused_by
        if self.queue.keys() - self.shared.queue.keys() and paused is None:
            self.writes.append(u.PatchSession(metadata={PAUSED_KEY: "restart"}))
        elif self.shared.queue and not self.queue and paused is not None:
            self.writes.append(u.PatchSession(drop=(PAUSED_KEY,)))

    def project(self) -> None:
        """Update the stored visibility of the adopted messages, and of those this affects, to match the tree."""
        tree, old = self._tree, self.shared.tree
        tails = compaction_tails(tree, self.shared.rows)
        before, after = hidden_messages(old, compaction_tails(old, self.shared.rows)), hidden_messages(tree, tails)
        changed = self.touched | {id_ for id_ in {**before, **after} if before.get(id_) != after.get(id_)}
        hidden: dict[str, Hidden | None] = {}
        for id_ in sorted(changed & self.shared.rows.keys() - self.queue.keys()):
            one = after.get(id_)
            if projection_of(self.shared.rows[id_].metadata) != ((one.at, one.by) if one else (None, None)):
                hidden[id_] = one
        if hidden:
            self.writes.append(u.SetHidden(hidden))

    def seal(self, end: str | None) -> None:
        """Seal the adopted messages that another one follows, and set when the last turn settled to when it last grew.

        A marker does not grow; what it covers says when its turn settled.
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
