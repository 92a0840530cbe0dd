"""A history made by operations, and what line, views and projection must be of it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import msgspec

from clew.transcript.line import LineTurn
from clew.transcript.message import Message, MessageRow, PartRow, Role
from clew.transcript.projection import Hidden, compaction_tails, hidden_messages
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn, TurnKind, with_parent
from clew.transcript.turn_state import TurnStatus

FRAME = (
    "Earlier parts of this conversation have been condensed. What follows stands for them; "
    "the messages after it are kept word for word.\n\n<summary>\n{}\n</summary>"
)
Place = tuple[str, int]
"""One part: its message and its index there."""


class History:
    """A session as its operations make it. Turns are t1, t2 …, user messages u1 …, replies a1 …, markers c1 …"""

    def __init__(self) -> None:
        self.turns: dict[str, Turn] = {}
        self.links: dict[str, tuple[str, ...]] = {}
        self.rows: dict[str, MessageRow] = {}
        self.moves: list[HeadMove] = []
        self.head: str | None = None
        self.open: str | None = None
        self.now = 0
        # What the naive side notes: the line after the last operation, what took the rest off, what summaries hold.
        self.line: list[str] = []
        self.off: dict[str, Hidden] = {}
        self.summarised: dict[str, set[Place]] = {}
        self._numbers: dict[str, int] = {}

    # Operations. Each returns the id of what it made.

    def turn(self, replies: int = 1, status: TurnStatus = "completed") -> str:
        """A user message with its replies, run to the end."""
        turn_id = self.prompt()
        for _ in range(replies):
            self.reply()
        self.settle(status)
        return turn_id

    def prompt(self) -> str:
        """A user message whose turn stays open."""
        self.now += 1
        turn_id = self._turn(self.head, "normal", "running")
        self._link(turn_id, self._message("u", "user", [{"type": "text", "text": f"at {self.now}"}]))
        self.open = turn_id
        self._note("rewind")
        return turn_id

    def reply(self, steps: int = 2) -> str:
        """A message of the assistant in the open turn."""
        assert self.open is not None
        self.now += 1
        parts: list[dict[str, Any]] = []
        for step in range(steps):
            parts += [{"type": "step-start"}, {"type": "text", "text": f"step {step} at {self.now}"}]
        message_id = self._message("a", "assistant", parts)
        self._link(self.open, message_id)
        self._note("rewind")
        return message_id

    def settle(self, status: TurnStatus = "completed") -> None:
        """The open turn ends, and the head moves onto it unless it was refused."""
        assert self.open is not None
        self.now += 1
        turn_id, self.open = self.open, None
        self.turns[turn_id] = msgspec.structs.replace(self.turns[turn_id], status=status, settled_at=self.now)
        if status == "refused":
            self._note("refused")
        else:
            self.move(turn_id, "turn")

    def reopen(self) -> None:
        """The turn at the head runs again: one that nobody answered, or one that came to its step limit."""
        assert self.head is not None
        self.open = self.head
        self.turns[self.head] = msgspec.structs.replace(self.turns[self.head], status="running", settled_at=None)
        self._note("rewind")

    def move(self, to: str | None, why: MoveReason, at: int | None = None) -> None:
        """Every head move goes through here."""
        self.now += 1
        self.moves.append(HeadMove(len(self.moves) + 1, "s", self.head, to, self.now if at is None else at, why))
        self.head = to
        self._note("rewind", at)

    def resend(self, turn_id: str) -> str:
        """A sibling that starts with the same message row and that nobody has answered yet."""
        again = self._turn(self.turns[turn_id].parent_turn_id, "normal", "unanswered")
        self._link(again, self.links[turn_id][0])
        self.move(again, "rewind")
        return again

    def compact(self, tail: str | None, split: int | None = None) -> str:
        """A summary of all before ``tail`` (and of its parts before ``split``), above an open turn if there is one."""
        self.now += 1
        above = self.turns[self.open].parent_turn_id if self.open else self.head
        kept_before, end = self.kept_from(), (self.line.index(tail), split or 0) if tail else (0, 0)
        summarised = {
            (message_id, part)
            for place, message_id in enumerate(self.line)
            for part in range(len(self.rows[message_id].parts))
            if kept_before <= (place, part) < end and message_id[0] != "c"
        }
        turn_id = self._turn(above, "compaction", "completed", settled_at=self.now)
        data: dict[str, Any] = {"summary": f"summary by {turn_id}", "tail_start_id": tail, "auto": True}
        if split is not None:
            data["split"] = {"message_id": tail, "from_part": split}
        self._link(turn_id, self._message("c", "assistant", [{"type": "data-compaction", "data": data}]))
        self.summarised[turn_id] = summarised
        if self.open is not None:
            self.turns[self.open] = with_parent(self.turns[self.open], self.turns[turn_id])
        self.move(turn_id, "compaction")
        return turn_id

    # What the modules are given.

    @property
    def tree(self) -> Tree:
        return Tree(self.head, self.open, dict(self.turns), dict(self.links), tuple(self.moves))

    @property
    def line_of_turns(self) -> list[LineTurn]:
        return [LineTurn(turn, tuple(self.rows[id_] for id_ in self.links[turn.id])) for turn in self.path()]

    def projection(self) -> dict[str, Hidden]:
        return hidden_messages(self.tree, compaction_tails(self.tree, self.rows))

    # The naive side.

    def path(self) -> list[Turn]:
        at = self.open or self.head
        path: list[Turn] = []
        while at is not None:
            path.insert(0, self.turns[at])
            at = self.turns[at].parent_turn_id
        return path

    def compactions(self) -> list[Turn]:
        return [turn for turn in self.path() if turn.kind == "compaction"]

    def marker(self, turn: Turn) -> dict[str, Any]:
        return cast(dict[str, Any], self.rows[self.links[turn.id][0]].parts[0].data["data"])

    def tail_of(self, turn: Turn) -> tuple[int, int]:
        """Where on the line, and at which part, what this compaction kept begins."""
        tail, split = self.marker(turn)["tail_start_id"], self.marker(turn).get("split", {"from_part": 0})
        if tail is None:
            return 0, 0
        if tail in self.line:
            return self.line.index(tail), split["from_part"]
        return self.line.index(self.links[turn.id][0]) + 1, 0

    def kept_from(self) -> tuple[int, int]:
        return self.tail_of(self.compactions()[-1]) if self.compactions() else (0, 0)

    def hidden(self) -> dict[str, Hidden]:
        """The projection, from the notes and the words of the rule."""
        hidden = dict(self.off)
        compactions = self.compactions()
        for place, message_id in enumerate(self.line):
            if message_id[0] == "c":
                continue
            covering = [turn for turn in compactions if place < self.tail_of(turn)[0]]
            if covering and covering[-1] is compactions[-1]:
                hidden[message_id] = Hidden(cast(int, covering[0].settled_at), "compaction")
        for older, newer in pairwise(compactions):
            hidden[self.links[older.id][0]] = Hidden(cast(int, newer.settled_at), "compaction")
        return hidden

    def sent(self) -> list[Message]:
        """What the model is sent, from the words of the rule."""
        start, from_part = self.kept_from()
        sent = []
        if self.compactions():
            newest = self.compactions()[-1]
            text = FRAME.format(self.marker(newest)["summary"])
            metadata = {"turn_id": newest.id, "synthetic": True, "summary": True}
            sent = [Message(self.links[newest.id][0], "user", [{"type": "text", "text": text}], metadata)]
        for place, message_id in enumerate(self.line):
            if message_id[0] == "c" or place < start:
                continue
            message = self.shown(message_id)
            sent.append(
                msgspec.structs.replace(message, parts=message.parts[from_part:]) if place == start else message
            )
        return sent

    def shown(self, message_id: str) -> Message:
        row = self.rows[message_id]
        [turn_id] = [turn.id for turn in self.path() if message_id in self.links[turn.id]]
        metadata = {**row.metadata, "turn_id": turn_id, "created_at": row.created_at}
        return Message(row.id, row.role, [part.data for part in row.parts], metadata)

    # Inside.

    def _note(self, why: Any, at: int | None = None) -> None:
        """What the operation did to the line, found by making the line anew."""
        before = self.line
        self.line = [message_id for turn in self.path() for message_id in self.links[turn.id]]
        for message_id in set(before) - set(self.line):
            self.off[message_id] = Hidden(self.now if at is None else at, why)
        for message_id in self.line:
            self.off.pop(message_id, None)

    def _id(self, kind: str) -> str:
        self._numbers[kind] = self._numbers.get(kind, 0) + 1
        return f"{kind}{self._numbers[kind]}"

    def _turn(self, parent: str | None, kind: TurnKind, status: TurnStatus, settled_at: int | None = None) -> str:
        turn_id = self._id("t")
        turn = Turn(
            id=turn_id,
            session_id="s",
            parent_turn_id=parent,
            created_at=self.now,
            kind=kind,
            status=status,
            settled_at=settled_at,
        )
        self.turns[turn_id] = with_parent(turn, self.turns[parent] if parent else None)
        self.links[turn_id] = ()
        return turn_id

    def _message(self, kind: str, role: Role, parts: list[dict[str, Any]]) -> str:
        message_id = self._id(kind)
        rows = tuple(PartRow(f"p{place}", place, part, self.now, self.now) for place, part in enumerate(parts))
        self.rows[message_id] = MessageRow(message_id, "s", role, self.now, self.now, {"x": message_id}, rows)
        return message_id

    def _link(self, turn_id: str, message_id: str) -> None:
        self.links[turn_id] = (*self.links[turn_id], message_id)


def allowed_operations(history: History) -> dict[str, Callable[[int], object]]:
    """What can be done now, by name; the number picks among several ways."""
    path = history.path()
    head = history.turns.get(history.head or "")
    can: dict[str, Callable[[int], object]] = {}
    if tails := _tails(history):
        can["compact"] = lambda n: history.compact(*tails[n % len(tails)])
    if history.open is not None:
        can["reply"] = lambda n: history.reply(1 + n % 3)
        can["settle"] = lambda n: history.settle(("completed", "aborted", "failed")[n % 3])
        if history.links[history.open][-1][0] == "u":
            can["refuse"] = lambda _: history.settle("refused")
        return can
    can["turn"] = lambda n: history.turn(n % 3)
    can["prompt"] = lambda _: history.prompt()
    if head is not None:
        ancestors = [None, *(turn.id for turn in path[:-1])]
        asked = [turn.id for turn in path if turn.kind == "normal"]
        can["rewind"] = lambda n: history.move(ancestors[-1 - n % len(ancestors)], "rewind")
        can["goto"] = lambda n: history.move(list(history.turns)[n % len(history.turns)], "goto")
        if asked:
            can["resend"] = lambda n: history.resend(asked[n % len(asked)])
        if head.status in ("unanswered", "completed") and head.kind == "normal":
            can["reopen"] = lambda _: history.reopen()
    if history.moves and history.moves[-1].why == "rewind":
        can["unrewind"] = lambda _: history.move(history.moves[-1].from_turn_id, "unrewind")
    return can


def _tails(history: History) -> list[tuple[str, int | None]]:
    """Where a compaction may cut: from the last cut on, at a message or at a step of a reply."""
    cuts: list[tuple[str, int | None]] = []
    for place, message_id in enumerate(history.line):
        steps = range(2, len(history.rows[message_id].parts), 2) if message_id[0] == "a" else ()
        parts = [None, *steps] if message_id[0] != "c" else []
        cuts += [(message_id, part) for part in parts if (place, part or 0) >= history.kept_from()]
    return cuts


NAMES = (
    *("turn", "turn", "turn", "prompt", "prompt", "reply", "reply", "settle", "refuse", "reopen"),
    *("rewind", "rewind", "unrewind", "resend", "goto", "compact", "compact"),
)
