"""Line, views and projection: what the conversation is, what is sent, and what other readers are told is hidden.

A small model of a session takes random operations and notes, naively and from scratch after each one, what is on
the line, what took a message off it, and what each summary was made of. The three modules are held against that.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InternalError
from clew.transcript.line import LineTurn, end_of_line, line_messages, line_turns, path_to
from clew.transcript.message import Message, MessageRow, PartRow, Role
from clew.transcript.project import Hidden, Tail, project, projection_of, tails_of
from clew.transcript.turn import HeadMove, MoveReason, Tree, Turn, TurnKind, placed
from clew.transcript.turn_state import OPEN, TurnStatus
from clew.transcript.view import find_compaction, model_view, visible_view

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
            self.turns[self.open] = placed(self.turns[self.open], self.turns[turn_id])
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
        return project(self.tree, tails_of(self.tree, self.rows))

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
        self.turns[turn_id] = placed(turn, self.turns[parent] if parent else None)
        self.links[turn_id] = ()
        return turn_id

    def _message(self, kind: str, role: Role, parts: list[dict[str, Any]]) -> str:
        message_id = self._id(kind)
        rows = tuple(PartRow(f"p{place}", place, part, self.now, self.now) for place, part in enumerate(parts))
        self.rows[message_id] = MessageRow(message_id, "s", role, self.now, self.now, {"x": message_id}, rows)
        return message_id

    def _link(self, turn_id: str, message_id: str) -> None:
        self.links[turn_id] = (*self.links[turn_id], message_id)


# Random histories: the operations that the present state allows, picked by number.


def _operations(history: History) -> dict[str, Callable[[int], object]]:
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
SCRIPTS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 11)), min_size=1, max_size=25)


def play(script: list[tuple[str, int]], after_each: Callable[[History], None]) -> History:
    """The history a script makes; what cannot be done at its place is left out."""
    history = History()
    for name, number in script:
        operation = _operations(history).get(name)
        if operation is not None:
            operation(number)
            after_each(history)
    return history


# Properties.


@given(SCRIPTS)
def test_the_line_is_the_path_from_the_root_to_its_end(script: list[tuple[str, int]]) -> None:
    """Through the open turn when there is one, each turn with its messages in order."""

    def judge(history: History) -> None:
        tree = history.tree
        assert list(line_turns(tree)) == history.path()
        assert [message_id for _, message_id in line_messages(tree)] == history.line
        assert all(message_id in tree.links[turn.id] for turn, message_id in line_messages(tree))
        assert end_of_line(tree.head_turn_id, tree.open_turn_id) == (history.open or history.head)

    play(script, judge)


@given(SCRIPTS)
def test_the_projection_is_what_replaying_every_move_from_scratch_gives(script: list[tuple[str, int]]) -> None:
    """After each operation: who is hidden, why, and since when."""

    def judge(history: History) -> None:
        assert history.projection() == history.hidden()

    play(script, judge)


@given(SCRIPTS, st.data())
def test_a_message_leaves_with_the_last_move_whatever_the_clock_said(
    script: list[tuple[str, int]], data: st.DataObject
) -> None:
    """Moves are ordered by their number: the clock may have stepped back between them."""
    history = History()
    for name, number in script:
        if name == "refuse":  # a refusal has a time and no number
            continue
        operation = _operations(history).get(name)
        if operation is not None:
            history.now = data.draw(st.integers(0, 20))
            operation(number)
            assert history.projection() == history.hidden()


@given(SCRIPTS)
def test_a_message_on_the_line_is_visible_or_summarised_and_never_both(script: list[tuple[str, int]]) -> None:
    """What a person sees and what other readers are told agree, marker included."""

    def judge(history: History) -> None:
        hidden = history.projection()
        visible = [message.id for message in visible_view(history.line_of_turns)]
        assert len(visible) == len(set(visible))
        assert set(visible) == set(history.line) - set(hidden)
        assert {hidden[id_].by for id_ in history.line if id_ in hidden} <= {"compaction"}

    play(script, judge)


@given(SCRIPTS)
def test_a_message_is_off_only_when_no_turn_on_the_line_holds_it(script: list[tuple[str, int]]) -> None:
    """Two turns may hold one row: it stays as long as one of them does, and is off once none does."""

    def judge(history: History) -> None:
        on_line = {message_id for turn in history.path() for message_id in history.links[turn.id]}
        off = {id_ for id_, why in history.projection().items() if why.by != "compaction"}
        assert off == set(history.rows) - on_line

    play(script, judge)


@given(SCRIPTS, st.integers(0, 11), st.booleans())
def test_undoing_a_rewind_restores_the_projection_and_both_views(
    script: list[tuple[str, int]], number: int, resend: bool
) -> None:
    """Every message as it was, times included, whether the rewind was a move back or a resend."""
    history = play(script, lambda _: None)
    before = (history.projection(), visible_view(history.line_of_turns), model_view(history.line_of_turns))
    operation = _operations(history).get("resend" if resend else "rewind")
    if operation is not None:
        left = history.head
        operation(number)
        history.move(left, "unrewind")
    after = (history.projection(), visible_view(history.line_of_turns), model_view(history.line_of_turns))
    assert after == before


@pytest.mark.rule("CP-3")
@given(SCRIPTS)
def test_the_model_is_sent_the_summary_and_all_from_the_start_of_the_tail_on(script: list[tuple[str, int]]) -> None:
    """In the order of the line, markers left out, the split applied; whole messages compared."""

    def judge(history: History) -> None:
        assert model_view(history.line_of_turns) == history.sent()

    play(script, judge)


@pytest.mark.rule("CP-3")
@given(SCRIPTS)
def test_every_part_of_the_line_is_in_a_summary_or_sent(script: list[tuple[str, int]]) -> None:
    """After any number of compactions, rewinds and resends; nothing falls in between, no part is sent twice."""

    def judge(history: History) -> None:
        parts = {
            (message_id, part)
            for message_id in history.line
            if message_id[0] != "c"
            for part in range(len(history.rows[message_id].parts))
        }
        newest = history.compactions()[-1] if history.compactions() else None
        sent = []
        for message in model_view(history.line_of_turns):
            if newest is None or message.id != history.links[newest.id][0]:
                whole = len(history.rows[message.id].parts)
                sent += [(message.id, part) for part in range(whole - len(message.parts), whole)]
        summarised = {place for turn in history.compactions() for place in history.summarised[turn.id]}
        assert len(sent) == len(set(sent))
        assert set(sent) | (summarised & parts) == parts

    play(script, judge)


@given(SCRIPTS)
def test_a_person_sees_the_newest_marker_before_the_first_message_kept(script: list[tuple[str, int]]) -> None:
    """One marker, in front; then the kept messages, whole, also the one that a split cuts for the model."""

    def judge(history: History) -> None:
        start, _ = history.kept_from()
        kept = [history.shown(id_) for id_ in history.line[start:] if id_[0] != "c"]
        marker = [history.shown(history.links[turn.id][0]) for turn in history.compactions()[-1:]]
        assert visible_view(history.line_of_turns) == [*marker, *kept]

    play(script, judge)


@given(SCRIPTS)
def test_reading_changes_nothing(script: list[tuple[str, int]]) -> None:
    """Tree, rows and lines are the same after every reading."""
    history = play(script, lambda _: None)
    given_ = (history.tree, history.rows, history.line_of_turns)
    before = msgspec.json.encode(given_)
    for _ in range(2):
        line_turns(history.tree), list(line_messages(history.tree)), history.projection()
        visible_view(history.line_of_turns), model_view(history.line_of_turns)
    assert msgspec.json.encode(given_) == before


@given(SCRIPTS)
def test_the_order_of_the_compactions_given_does_not_matter(script: list[tuple[str, int]]) -> None:
    """Neither do those that are off the line."""
    history = play(script, lambda _: None)
    tails = tails_of(history.tree, history.rows)
    on_line = [tail for tail in tails if tail.turn_id in {turn.id for turn in history.path()}]
    assert project(history.tree, reversed(tails)) == project(history.tree, on_line) == project(history.tree, tails)


# Examples, as transcripts.


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def test_an_empty_session_has_an_empty_line() -> None:
    """No turns, no messages, nothing hidden, nothing sent."""
    history = History()
    assert line_turns(history.tree) == ()
    assert (visible_view([]), model_view([]), history.projection()) == ([], [], {})


def test_a_plain_conversation_is_seen_and_sent_as_it_is() -> None:
    """Each message names the turn it was reached by and when it came."""
    history = History()
    history.turn()
    history.prompt()
    expected = [
        Message("u1", "user", [{"type": "text", "text": "at 1"}], {"x": "u1", "turn_id": "t1", "created_at": 1}),
        Message(
            "a1",
            "assistant",
            [
                {"type": "step-start"},
                {"type": "text", "text": "step 0 at 2"},
                {"type": "step-start"},
                {"type": "text", "text": "step 1 at 2"},
            ],
            {"x": "a1", "turn_id": "t1", "created_at": 2},
        ),
        Message("u2", "user", [{"type": "text", "text": "at 5"}], {"x": "u2", "turn_id": "t2", "created_at": 5}),
    ]
    assert visible_view(history.line_of_turns) == model_view(history.line_of_turns) == expected
    assert history.projection() == {}


def test_a_rewind_hides_what_comes_after_and_a_goto_brings_it_back() -> None:
    """Since the moment of the move."""
    history = History()
    for _ in range(3):
        history.turn()
    history.move("t1", "rewind", at=100)
    assert history.projection() == dict.fromkeys(["u2", "a2", "u3", "a3"], Hidden(100, "rewind"))
    history.move("t2", "goto", at=200)
    assert history.projection() == dict.fromkeys(["u3", "a3"], Hidden(100, "rewind"))
    history.move("t1", "rewind", at=300)
    assert history.projection() == {
        **dict.fromkeys(["u2", "a2"], Hidden(300, "rewind")),
        **dict.fromkeys(["u3", "a3"], Hidden(100, "rewind")),
    }


def test_a_rewind_of_the_first_message_leaves_nothing_and_a_second_root_may_follow() -> None:
    """Several roots are allowed."""
    history = History()
    history.turn()
    history.move(None, "rewind", at=100)
    assert line_turns(history.tree) == ()
    history.turn()
    assert [turn.id for turn in line_turns(history.tree)] == ["t2"]
    assert history.projection() == dict.fromkeys(["u1", "a1"], Hidden(100, "rewind"))


def test_a_resend_keeps_the_message_and_hides_its_answer() -> None:
    """Both turns hold the row; it is off only once the head has left both."""
    history = History()
    history.turn()
    history.turn()
    sibling = history.resend("t2")
    resent_at = history.now
    assert history.links[sibling] == ("u2",)
    assert ids(visible_view(history.line_of_turns)) == ["u1", "a1", "u2"]
    assert history.projection() == {"a2": Hidden(resent_at, "rewind")}
    history.move("t1", "rewind", at=1000)
    assert history.projection() == {"a2": Hidden(resent_at, "rewind"), "u2": Hidden(1000, "rewind")}
    history.move("t2", "goto")
    assert history.projection() == {}


def test_a_message_of_two_turns_is_hidden_since_the_last_of_them_was_left_for_good() -> None:
    """A turn that was left, entered again and left once more goes by the last time."""
    history = History()
    history.turn()
    history.turn()
    sibling = history.resend("t2")
    history.move("t2", "goto", at=100)
    history.move("t1", "rewind", at=200)
    assert history.projection()["u2"] == Hidden(200, "rewind")
    history.move(sibling, "goto", at=300)
    history.move("t2", "goto", at=400)
    history.move("t1", "rewind", at=50)
    assert history.projection() == {"u2": Hidden(50, "rewind"), "a2": Hidden(50, "rewind")}


def test_a_refused_prompt_is_hidden_as_refused_and_an_open_one_is_not() -> None:
    """The head never was there; the line ran through it while it was open."""
    history = History()
    history.turn()
    history.prompt()
    assert ids(visible_view(history.line_of_turns)) == ["u1", "a1", "u2"]
    history.settle("refused")
    assert ids(visible_view(history.line_of_turns)) == ["u1", "a1"]
    assert history.projection() == {"u2": Hidden(history.now, "refused")}


def test_a_refused_answer_to_a_resent_message_stays_on_the_line_until_the_head_leaves() -> None:
    """The head was there already: what takes the message off is the rewind."""
    history = History()
    history.turn()
    history.turn()
    history.resend("t2")
    history.reopen()
    history.settle("refused")
    assert "u2" not in history.projection()
    history.move("t1", "rewind", at=1000)
    assert history.projection()["u2"] == Hidden(1000, "rewind")


@pytest.mark.parametrize(
    ("refused_at", "hidden"), [(5, Hidden(10, "rewind")), (10, Hidden(10, "refused")), (20, Hidden(20, "refused"))]
)
def test_of_a_refusal_and_a_rewind_the_later_one_hides(refused_at: int, hidden: Hidden) -> None:
    """A row that both a turn left behind and a refused one hold."""
    left = Turn(id="t1", session_id="s", parent_turn_id=None, created_at=1, status="completed", settled_at=2)
    refused = msgspec.structs.replace(left, id="t2", status="refused", settled_at=refused_at)
    moves = (HeadMove(1, "s", None, "t1", 2, "turn"), HeadMove(2, "s", "t1", None, 10, "rewind"))
    tree = Tree(None, None, {"t1": left, "t2": refused}, {"t1": ("u1",), "t2": ("u1",)}, moves)
    assert project(tree) == {"u1": hidden}


def compacted() -> History:
    """Three turns, the first two summarised."""
    history = History()
    for _ in range(3):
        history.turn()
    history.compact("u3")
    return history


@pytest.mark.rule("CP-3")
def test_a_compaction_stands_for_what_came_before_its_tail() -> None:
    """A person sees the marker, the model a user message in clew's own frame; the originals are hidden, not gone."""
    history = compacted()
    marker = history.shown("c1")
    assert visible_view(history.line_of_turns) == [marker, history.shown("u3"), history.shown("a3")]
    assert model_view(history.line_of_turns) == [
        Message(
            "c1",
            "user",
            [{"type": "text", "text": FRAME.format("summary by t4")}],
            {"turn_id": "t4", "synthetic": True, "summary": True},
        ),
        history.shown("u3"),
        history.shown("a3"),
    ]
    at = history.turns["t4"].settled_at
    assert at is not None
    assert history.projection() == dict.fromkeys(["u1", "a1", "u2", "a2"], Hidden(at, "compaction"))


def test_rewinding_before_a_compaction_brings_the_originals_back_by_itself() -> None:
    """The compaction is a turn on the path; going back to it brings its summary back."""
    history = compacted()
    hidden = history.projection()
    history.move("t3", "rewind", at=100)
    assert ids(model_view(history.line_of_turns)) == ["u1", "a1", "u2", "a2", "u3", "a3"]
    assert history.projection() == {"c1": Hidden(100, "rewind")}
    history.move("t4", "unrewind")
    assert history.projection() == hidden


@pytest.mark.rule("CP-3")
def test_a_second_compaction_takes_the_place_of_the_first_and_leaves_its_times() -> None:
    """What the first covered stays hidden since the first; its marker is covered by the second."""
    history = compacted()
    first = history.now - 1
    history.turn()
    history.compact("u4")
    second = history.now - 1
    assert ids(visible_view(history.line_of_turns)) == ["c2", "u4", "a4"]
    assert history.projection() == {
        **dict.fromkeys(["u1", "a1", "u2", "a2"], Hidden(first, "compaction")),
        **dict.fromkeys(["u3", "a3", "c1"], Hidden(second, "compaction")),
    }


@pytest.mark.rule("CP-3")
def test_a_tail_that_begins_before_an_older_marker_leaves_that_marker_out() -> None:
    """With two turns kept each time this is the rule, not the exception."""
    history = History()
    for _ in range(3):
        history.turn()
    history.compact("u2")
    history.turn()
    history.compact("u3")
    assert ids(model_view(history.line_of_turns)) == ["c2", "u3", "a3", "u4", "a4"]
    assert history.projection()["c1"] == Hidden(history.now - 1, "compaction")
    assert "c2" not in history.projection()


@pytest.mark.rule("CP-3")
def test_a_split_sends_only_the_later_steps_of_the_message_it_cuts() -> None:
    """A person still sees it whole."""
    history = History()
    history.turn()
    history.compact("a1", split=2)
    assert [message.parts for message in model_view(history.line_of_turns)][1:] == [history.shown("a1").parts[2:]]
    assert visible_view(history.line_of_turns) == [history.shown("c1"), history.shown("a1")]
    assert history.projection() == {"u1": Hidden(history.now - 1, "compaction")}


@pytest.mark.rule("CP-3")
def test_a_compaction_for_an_open_turn_lies_above_it_and_keeps_it() -> None:
    """Its marker comes before its tail on the line, and is not hidden for that."""
    history = History()
    history.turn()
    history.prompt()
    history.compact("u2")
    assert [turn.id for turn in line_turns(history.tree)] == ["t1", "t3", "t2"]
    assert ids(visible_view(history.line_of_turns)) == ["c1", "u2"]
    assert history.projection() == dict.fromkeys(["u1", "a1"], Hidden(history.now - 1, "compaction"))
    history.compact("u2")
    assert ids(model_view(history.line_of_turns)) == ["c2", "u2"]
    assert history.projection()["c1"] == Hidden(history.now - 1, "compaction")


@pytest.mark.rule("CP-3")
def test_a_prompt_edited_below_its_compaction_is_sent() -> None:
    """The tail named the message that was edited and is off the line now: all above the marker stays summarised."""
    history = History()
    history.turn()
    history.prompt()
    history.compact("u2")
    history.reply()
    history.settle()
    history.move("t3", "rewind", at=100)
    assert ids(model_view(history.line_of_turns)) == ["c1"]
    history.turn()
    assert ids(model_view(history.line_of_turns)) == ["c1", "u3", "a3"]
    assert ids(visible_view(history.line_of_turns)) == ["c1", "u3", "a3"]
    compacted_at = history.turns["t3"].settled_at
    assert compacted_at is not None
    assert history.projection() == {
        **dict.fromkeys(["u1", "a1"], Hidden(compacted_at, "compaction")),
        **dict.fromkeys(["u2", "a2"], Hidden(100, "rewind")),
    }


@pytest.mark.rule("CP-3")
def test_a_prompt_resent_below_its_compaction_is_sent() -> None:
    """The tail began in the answer that was left behind. The prompt is in the summary too: better twice than never."""
    history = History()
    history.turn()
    history.prompt()
    history.reply()
    history.compact("a2", split=2)
    assert ids(model_view(history.line_of_turns)) == ["c1", "a2"]
    history.settle()
    history.resend("t2")
    assert ids(model_view(history.line_of_turns)) == ids(visible_view(history.line_of_turns)) == ["c1", "u2"]
    assert model_view(history.line_of_turns)[1] == history.shown("u2")


def test_a_prompt_refused_after_room_was_made_for_it_is_hidden_as_refused() -> None:
    """The head left its turn for the compaction while it was open; what took it off the line is the refusal."""
    history = History()
    history.turn()
    history.resend("t1")
    history.reopen()
    history.compact("u1")
    history.settle("refused")
    assert [turn.id for turn in line_turns(history.tree)] == ["t3"]
    assert history.projection()["u1"] == Hidden(history.now, "refused")


@pytest.mark.parametrize("tail", [None, 7, {"a": 1}, ["u3"]])
def test_a_marker_without_a_readable_tail_hides_nothing(tail: Any) -> None:
    """Rather all of it twice than some of it not at all."""
    history = compacted()
    _rewrite(history, tail_start_id=tail)
    assert ids(model_view(history.line_of_turns)) == ["c1", "u1", "a1", "u2", "a2", "u3", "a3"]
    assert history.projection() == {}


@pytest.mark.parametrize(
    "split",
    [None, 7, {}, {"message_id": "u3"}, {"message_id": "a3", "from_part": -1}, {"message_id": "a9", "from_part": 1}],
)
def test_a_split_that_cannot_be_read_leaves_its_message_whole(split: Any) -> None:
    """Also one of a message that is not there."""
    history = compacted()
    _rewrite(history, split=split)
    assert model_view(history.line_of_turns)[1:] == [history.shown("u3"), history.shown("a3")]


def test_a_compaction_turn_without_a_marker_counts_for_nothing() -> None:
    """One that failed, or whose message is lost."""
    history = compacted()
    lost = [entry for entry in history.line_of_turns if entry.turn.id != "t4"]
    assert find_compaction([*lost, LineTurn(history.turns["t4"], ())]) is None
    assert tails_of(history.tree, {}) == ()
    assert tails_of(history.tree, history.rows) == (Tail("t4", "u3", history.now - 1),)


def test_a_compaction_part_in_a_normal_turn_is_a_part_like_any_other() -> None:
    """Only a compaction turn holds a marker."""
    history = compacted()
    history.turns["t4"] = msgspec.structs.replace(history.turns["t4"], kind="normal")
    assert find_compaction(history.line_of_turns) is None
    assert ids(model_view(history.line_of_turns)) == ["u1", "a1", "u2", "a2", "u3", "a3", "c1"]
    assert tails_of(history.tree, history.rows) == ()


@pytest.mark.parametrize("parent", ["t9", "t2"], ids=["missing", "circle"])
def test_a_broken_tree_is_an_error_and_no_endless_walk(parent: str) -> None:
    """A parent that is not there, and turns that are each other's."""
    history = History()
    history.turn()
    history.turn()
    turns = {**history.turns, "t1": msgspec.structs.replace(history.turns["t1"], parent_turn_id=parent)}
    with pytest.raises(InternalError, match="the turn tree is broken"):
        path_to(turns, "t2")


def test_the_two_keys_are_read_as_they_stand() -> None:
    """Absent reads as none."""
    assert projection_of({"hidden_at": 5, "hidden_by": "rewind"}) == (5, "rewind")
    assert projection_of({}) == (None, None)


def test_the_model_makes_every_kind_of_history() -> None:
    """Each operation is open at some point; otherwise the properties would prove little."""
    seen: set[str] = set()
    history = History()
    for name in (
        "turn",
        "rewind",
        "unrewind",
        "compact",
        "prompt",
        "refuse",
        "resend",
        "reopen",
        "reply",
        "settle",
        "goto",
    ):
        operations = _operations(history)
        operations[name](1)
        seen.add(name)
    assert seen == set(NAMES)
    assert all((turn.status in OPEN) == (turn.id == history.open) for turn in history.turns.values())


def _rewrite(history: History, **changes: Any) -> None:
    """Change what the marker c1 says, as another program might have."""
    row = history.rows["c1"]
    data = {**row.parts[0].data, "data": {**row.parts[0].data["data"], **changes}}
    history.rows["c1"] = msgspec.structs.replace(row, parts=(msgspec.structs.replace(row.parts[0], data=data),))
