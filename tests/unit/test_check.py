"""The judge: it is silent over a sound store, and names what is wrong with any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clew.errors import InternalError
from clew.history.check import Problem, check, extends
from clew.ids import Mint
from clew.store.base import Damage, Whole
from clew.store.memory import MemoryStore
from clew.store.session_value import SessionValue
from clew.store.unit import (
    Dequeue,
    Enqueue,
    InsertMessage,
    LinkMessage,
    MoveHead,
    OpenTurn,
    PatchMessage,
    SetHidden,
    SetTurn,
)
from clew.testing.chunks import data, reasoning, reply, step, text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, user_row
from clew.testing.streams import random_stream
from clew.transcript import chunk as c
from clew.transcript.fold import Fold
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.project import project, projection_of, tails_of
from clew.transcript.pruned import Pruned
from clew.transcript.session import SessionState
from clew.transcript.turn import HeadMove, Turn

replace = msgspec.structs.replace


class Told:
    """A session of two settled turns and one that is open with a stream under way, and names for what is in it."""

    def __init__(self, store: MemoryStore, scribe: Scribe) -> None:
        self.store = store
        self.scribe = scribe
        self.session_id = scribe.session_id
        self.first = self.second = ("", "", "")
        self.open_turn = self.question = self.streaming = ""

    @property
    def value(self) -> SessionValue:
        return self.store._values[self.session_id]

    async def problems(self) -> list[tuple[str, str | None]]:
        found = await check(self.store)
        assert {problem.session_id for problem in found} <= {self.session_id}
        return [(problem.what, problem.id) for problem in found]

    def set_turn(self, turn_id: str, **changes: Any) -> None:
        self.value.turns[turn_id] = replace(self.value.turns[turn_id], **changes)

    def set_message(self, message_id: str, **changes: Any) -> None:
        self.value.messages[message_id] = replace(self.value.messages[message_id], **changes)

    def set_state(self, **changes: Any) -> None:
        self.value.state["state"] = replace(self.value.state["state"], **changes)

    def set_session(self, **changes: Any) -> None:
        self.value.row["session"] = replace(self.value.row["session"], **changes)

    def set_part(self, message_id: str, place: int, **changes: Any) -> None:
        parts = list(self.value.messages[message_id].parts)
        parts[place] = replace(parts[place], **changes)
        self.set_message(message_id, parts=tuple(parts))

    async def hide(self) -> None:
        """Write the projections as the unit of a head move would."""
        tree = await self.store.load_tree(self.session_id)
        rows = {row.id: row for row in await self.store.load_messages(self.session_id)}
        truth = project(tree, tails_of(tree, rows))
        stale = {id_: None for id_, row in rows.items() if projection_of(row.metadata) != (None, None)}
        await self.scribe.commit(SetHidden({**stale, **truth}))


async def tell(store: MemoryStore | None = None) -> Told:
    store = store or MemoryStore()
    clock = FakeClock()
    scribe = await Scribe.create(store, clock=clock, mint=Mint(clock))
    told = Told(store, scribe)
    told.first = await scribe.turn("hello", text("hi there"))
    told.second = await scribe.turn("look", [*reasoning("hm"), *tool_call("read", {"path": "/x"}), *tool_output("y")])
    opened = await scribe.prompt("go on")
    told.open_turn, told.question = opened.id, opened.user.id
    recorder = opened.recorder()
    told.streaming = recorder.message.id
    await recorder.send(c.StartStep())
    await recorder.send(c.TextStart("t"))
    await recorder.flush()
    for chunk in text("one two three", id="t", open=True)[1:]:
        recorder.write(chunk)
        await recorder.flush()
    return told


# Sound stores.


async def test_an_empty_store_is_sound() -> None:
    """Also one whose only session is empty."""
    store = MemoryStore()
    assert await check(store) == []
    await Scribe.create(store)
    assert await check(store) == []


async def test_a_session_with_an_open_turn_and_a_stream_under_way_is_sound() -> None:
    """Chunks that are journalled and not folded are no problem."""
    told = await tell()
    assert await check(told.store) == []
    assert len(told.value.journal[told.streaming]) == 3


async def test_rewinds_resends_compactions_refusals_and_queues_are_sound() -> None:
    """Everything a history can hold, with its projections written."""
    store, clock = MemoryStore(), FakeClock()
    scribe = await Scribe.create(store, clock=clock, mint=Mint(clock))
    told = Told(store, scribe)
    first, question, _ = await scribe.turn("one", text("1"))
    second, _, _ = await scribe.turn("two", text("2"))
    clock.advance(5)
    await scribe.commit(MoveHead(first, clock.now_ms(), "rewind"))
    again = Turn(id=scribe.mint.turn(), session_id=scribe.session_id, parent_turn_id=None, created_at=clock.now_ms())
    await scribe.commit(
        OpenTurn(replace(again, status="unanswered")),
        LinkMessage(again.id, question),
        MoveHead(again.id, clock.now_ms(), "rewind"),
    )
    await scribe.commit(MoveHead(second, clock.now_ms(), "goto"))
    await compact(scribe, second)
    refused = await scribe.prompt("too large")
    await scribe.commit(SetTurn(refused.id, "refused", settled_at=clock.now_ms()))
    waiting, cancelled = (user_row(scribe.mint, scribe.session_id, name, clock.now_ms()) for name in ("later", "no"))
    await scribe.commit(InsertMessage(waiting), Enqueue(waiting.id, clock.now_ms()))
    await scribe.commit(InsertMessage(cancelled), Enqueue(cancelled.id, clock.now_ms()))
    await scribe.commit(Dequeue(cancelled.id), PatchMessage(cancelled.id, clock.now_ms(), {"cancelled_at": 1}))
    await told.hide()
    assert await check(store) == []
    assert {row.metadata.get("hidden_by") for row in told.value.messages.values()} == {None, "refused", "compaction"}


async def compact(scribe: Scribe, parent: str) -> None:
    now = scribe.clock.now_ms()
    turn = Turn(
        id=scribe.mint.turn(),
        session_id=scribe.session_id,
        parent_turn_id=parent,
        created_at=now,
        kind="compaction",
        status="completed",
        settled_at=now,
    )
    tail = (await scribe.store.load_tree(scribe.session_id)).links[parent][0]
    part = {"type": "data-compaction", "data": {"summary": "s", "tail_start_id": tail}}
    marker = MessageRow(
        scribe.mint.message(), scribe.session_id, "assistant", now, now, {}, (PartRow("p", 0, part, now, now),)
    )
    await scribe.commit(
        OpenTurn(turn), InsertMessage(marker), LinkMessage(turn.id, marker.id), MoveHead(turn.id, now, "compaction")
    )


# Stores that are not. Each case spoils one thing and names all that the judge must say.

Spoil = Callable[[Told], list[tuple[str, str | None]]]
CASES: dict[str, Spoil] = {}


def case(spoil: Spoil) -> Spoil:
    CASES[spoil.__name__] = spoil
    return spoil


@case
def parts_with_a_gap(told: Told) -> list[tuple[str, str | None]]:
    reply_ = told.first[2]
    told.set_part(reply_, 1, index=4)
    return [("its parts are numbered [0, 4]", reply_)]


@case
def a_tool_call_in_no_known_state(told: Told) -> list[tuple[str, str | None]]:
    reply_ = told.second[2]
    part = told.value.messages[reply_].parts[2]
    told.set_part(reply_, 2, data={**part.data, "state": "thinking"})
    return [
        ("a tool call is in state 'thinking', which does not exist", part.id),
        ("it was changed after it had settled: its seal does not match", reply_),
    ]


@case
def a_settled_message_that_was_changed(told: Told) -> list[tuple[str, str | None]]:
    reply_ = told.first[2]
    part = told.value.messages[reply_].parts[1]
    told.set_part(reply_, 1, data={**part.data, "text": "hi There"})
    return [("it was changed after it had settled: its seal does not match", reply_)]


@case
def a_settled_message_that_lost_a_part(told: Told) -> list[tuple[str, str | None]]:
    reply_ = told.first[2]
    told.set_message(reply_, parts=told.value.messages[reply_].parts[:1])
    return [("it was changed after it had settled: its seal does not match", reply_)]


@case
def a_parent_that_is_not_there(told: Told) -> list[tuple[str, str | None]]:
    turn_id = told.second[0]
    told.set_turn(turn_id, parent_turn_id="trn_gone")
    return [
        ("its parent trn_gone is not there", turn_id),
        ("its depth is 1, its parent's is None", turn_id),
    ]


@case
def turns_in_a_circle(told: Told) -> list[tuple[str, str | None]]:
    turn_id = told.first[0]
    told.set_turn(turn_id, parent_turn_id=told.second[0])
    return [("its depth is 0, its parent's is 1", turn_id)]


@case
def a_wrong_depth(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.second[0], depth=7)
    return [
        ("its depth is 7, its parent's is 0", told.second[0]),
        ("its depth is 2, its parent's is 7", told.open_turn),
    ]


@case
def a_wrong_nearest_compaction(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.open_turn, compaction_turn_id=told.first[0])
    return [(f"its nearest compaction is noted as {told.first[0]}", told.open_turn)]


@case
def a_compaction_that_does_not_note_itself(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.second[0], kind="compaction")
    return [("its nearest compaction is noted as None", told.second[0])]


@case
def two_open_turns(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.first[0], status="waiting")
    return [(f"it is waiting, but the session's open turn is {told.open_turn}", told.first[0])]


@case
def an_open_turn_that_the_session_does_not_know(told: Told) -> list[tuple[str, str | None]]:
    told.set_state(open_turn_id=None)
    return [("it is running, but the session's open turn is None", told.open_turn)]


@case
def a_turn_that_holds_a_message_that_is_not_there(told: Told) -> list[tuple[str, str | None]]:
    told.value.links[told.first[0]] += ("msg_gone",)
    return [("it holds msg_gone, which is not there", told.first[0])]


@case
def a_head_that_points_at_nothing(told: Told) -> list[tuple[str, str | None]]:
    told.set_state(head_turn_id="trn_gone")
    return [
        ("the head points at a turn that is not there", "trn_gone"),
        ("the open turn does not hang under the head", told.open_turn),
        (f"the reflog ends at {told.second[0]}, the head is trn_gone", "trn_gone"),
    ]


@case
def an_open_turn_that_is_not_there(told: Told) -> list[tuple[str, str | None]]:
    told.set_state(open_turn_id="trn_gone")
    return [
        ("it is running, but the session's open turn is trn_gone", told.open_turn),
        ("the open turn is not there", "trn_gone"),
    ]


@case
def an_open_turn_that_is_settled(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.open_turn, status="completed", settled_at=1)
    return [("the open turn is completed", told.open_turn)]


@case
def an_open_turn_somewhere_else(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.open_turn, parent_turn_id=told.first[0], depth=1)
    return [("the open turn does not hang under the head", told.open_turn)]


@case
def a_head_move_with_a_wrong_number(told: Told) -> list[tuple[str, str | None]]:
    told.value.moves[2] = replace(told.value.moves[2], seq=5)
    return [("head move 2 is numbered 5", told.second[0])]


@case
def a_head_move_that_starts_elsewhere(told: Told) -> list[tuple[str, str | None]]:
    told.value.moves[2] = replace(told.value.moves[2], from_turn_id=None)
    return [(f"head move 2 starts at None, the one before ended at {told.first[0]}", told.second[0])]


@case
def a_head_that_moved_without_a_word(told: Told) -> list[tuple[str, str | None]]:
    del told.value.moves[2]
    return [(f"the reflog ends at {told.first[0]}, the head is {told.second[0]}", told.second[0])]


@case
def a_queued_message_that_does_not_say_so(told: Told) -> list[tuple[str, str | None]]:
    row = user_row(told.scribe.mint, told.session_id, "later", 1)
    told.value.messages[row.id] = row
    told.value.queue[row.id] = Enqueue(row.id, 7)
    return [("its queued_at is None, the queue says 7", row.id)]


@case
def a_message_that_says_it_is_queued_and_is_not(told: Told) -> list[tuple[str, str | None]]:
    told.set_message(told.first[1], metadata={"queued_at": 7})
    return [("its queued_at is 7, the queue says None", told.first[1])]


@case
def a_message_in_a_turn_and_in_the_queue(told: Told) -> list[tuple[str, str | None]]:
    told.set_message(told.question, metadata={"queued_at": 7})
    told.value.queue[told.question] = Enqueue(told.question, 7)
    return [("it is in a turn and in the queue", told.question)]


@case
def a_message_that_belongs_nowhere(told: Told) -> list[tuple[str, str | None]]:
    row = user_row(told.scribe.mint, told.session_id, "lost", 1)
    told.value.messages[row.id] = row
    return [("it is in no turn and not in the queue", row.id)]


@case
def a_message_hidden_without_a_reason(told: Told) -> list[tuple[str, str | None]]:
    told.set_message(told.first[1], metadata={"hidden_at": 5, "hidden_by": "rewind"})
    return [("hidden_at and hidden_by are (5, 'rewind'), the tree says (None, None)", told.first[1])]


@case
def a_message_that_should_be_hidden(told: Told) -> list[tuple[str, str | None]]:
    at = told.scribe.clock.now_ms()
    told.set_state(head_turn_id=None)
    told.set_turn(told.open_turn, parent_turn_id=None, depth=0)
    told.value.moves[3] = HeadMove(3, told.session_id, told.second[0], None, at, "rewind")
    sentence = f"hidden_at and hidden_by are (None, None), the tree says ({at}, 'rewind')"
    return [(sentence, id_) for _, question, reply_ in (told.first, told.second) for id_ in (question, reply_)]


@case
def sums_that_do_not_add_up(told: Told) -> list[tuple[str, str | None]]:
    told.set_session(prompt_tokens=21)
    sentence = "its sums are Usage(input=21, output=10, reasoning=0, cache_read=0, cache_write=0)"
    added = "Usage(input=20, output=10, reasoning=0, cache_read=0, cache_write=0)"
    return [(f"{sentence}, its messages add up to {added}", None)]


@case
def a_total_that_does_not_add_up(told: Told) -> list[tuple[str, str | None]]:
    told.set_session(total_tokens=31)
    return [("its total is 31, its messages add up to 30", None)]


@case
def a_prune_of_what_is_no_output(told: Told) -> list[tuple[str, str | None]]:
    reply_, other = told.second[2], told.first[2]
    prunes = [Pruned(1, reply_, 2, 5, 0, 1), Pruned(2, reply_, 1, 5, 0, 1), Pruned(3, reply_, 9, 5, 0, 1)]
    prunes += [Pruned(3, other, 1, 5, 0, 1), Pruned(4, "msg_gone", 0, 5, 0, 1)]
    told.value.pruned.update({(one.seq, one.message_id, one.part): one for one in prunes})
    return [
        ("prune 2 names its part 1, which holds no output", reply_),
        ("prune 3 names its part 9, which holds no output", reply_),
        ("prune 3 names its part 1, which holds no output", other),
        ("prune 4 names its part 0, which holds no output", "msg_gone"),
    ]


@case
def a_journal_with_a_gap(told: Told) -> list[tuple[str, str | None]]:
    first, _, third = told.value.journal[told.streaming]
    told.value.journal[told.streaming] = (first, third)
    return [(f"the journal has a gap: [{first.n}, {third.n}]", told.streaming)]


@case
def a_journal_that_cannot_be_applied(told: Told) -> list[tuple[str, str | None]]:
    first, *rest = told.value.journal[told.streaming]
    told.value.journal[told.streaming] = (first._replace(part=9), *rest)
    return [("text-delta: there is no part 9", None)]


@pytest.mark.parametrize("name", CASES)
async def test_what_is_wrong_is_named_with_its_place(name: str) -> None:
    """All of it, and nothing else."""
    told = await tell()
    expected = CASES[name](told)
    assert sorted(await told.problems(), key=str) == sorted(expected, key=str)


async def test_every_session_is_looked_at() -> None:
    """A problem in one does not hide one in another, nor make up one in a third."""
    told = await tell()
    other, _ = await Scribe.create(told.store), await Scribe.create(told.store)
    told.set_session(total_tokens=31)
    row = told.store._values[other.session_id].row
    row["session"] = replace(row["session"], total_tokens=1)
    assert sorted(await check(told.store), key=str) == sorted(
        [
            Problem("its total is 31, its messages add up to 30", told.session_id),
            Problem("its total is 1, its messages add up to 0", other.session_id),
        ],
        key=str,
    )


async def test_what_the_engine_finds_in_its_own_storage_is_passed_on() -> None:
    """Pages, foreign keys: whatever the store's own look says."""

    class Damaged(MemoryStore):
        async def verify(self) -> Sequence[Damage]:
            return (Damage("page 7 is torn"), Damage("a part without a message", "ses_1", "prt_1"))

    assert await check(Damaged()) == [
        Problem("page 7 is torn"),
        Problem("a part without a message", "ses_1", "prt_1"),
    ]


async def test_a_row_that_does_not_decode_is_named_and_the_rest_is_still_judged() -> None:
    """With what is left of the message in its place."""

    class Undecodable(MemoryStore):
        async def load_whole(self, session_id: str) -> Whole | None:
            whole = await super().load_whole(session_id)
            assert whole is not None
            return replace(whole, damaged=(Damage("the part is not readable", session_id, "prt_1"),))

    told = await tell(Undecodable())
    told.set_session(total_tokens=31)
    assert await told.problems() == [
        ("the part is not readable", "prt_1"),
        ("its total is 31, its messages add up to 30", None),
    ]


async def test_a_session_that_cannot_be_read_at_all_is_a_problem_and_no_crash() -> None:
    """The others are judged all the same; the id is the closest one the error names."""

    class Unreadable(MemoryStore):
        bad = ""

        async def load_whole(self, session_id: str) -> Whole | None:
            if session_id == self.bad:
                raise InternalError("it is gone", turn_id="trn_1", message_id="msg_1")
            return await super().load_whole(session_id)

    store = Unreadable()
    told = await tell(store)
    store.bad = (await Scribe.create(store)).session_id
    told.set_session(total_tokens=31)
    assert sorted(await check(store), key=str) == sorted(
        [
            Problem("it is gone", store.bad, "msg_1"),
            Problem("its total is 31, its messages add up to 30", told.session_id),
        ],
        key=str,
    )


async def test_a_session_deleted_under_the_eyes_of_the_judge_is_no_problem() -> None:
    """It was listed, and is gone when its turn comes."""

    class Vanishing(MemoryStore):
        async def load_whole(self, session_id: str) -> None:
            return None

    store = Vanishing()
    await Scribe.create(store)
    assert await check(store) == []


def test_a_problem_reads_as_a_line() -> None:
    """With the place it knows."""
    assert [str(Problem("it is so", *place)) for place in ((), ("ses_1",), ("ses_1", "msg_1"), (None, "msg_1"))] == [
        "it is so",
        "ses_1: it is so",
        "ses_1 msg_1: it is so",
        "msg_1: it is so",
    ]


async def test_reading_and_judging_change_nothing() -> None:
    """Twice the same answer, and the store as it was."""
    told = await tell()
    a_settled_message_that_was_changed(told)
    before = repr(vars(told.value))
    assert await check(told.store) == await check(told.store)
    assert repr(vars(told.value)) == before


# What somebody was shown.


async def test_what_was_shown_must_be_stored() -> None:
    """All of it, or something that goes on from it; in folded parts and in the journal."""
    told = await tell()
    shown = [c.StartStep(), *text("one two three", id="t", open=True)]
    for upto in range(len(shown) + 1):
        assert await check(told.store, {told.streaming: shown[:upto]}) == []
    lacking = Problem("what is stored does not hold all that was shown", told.session_id, told.streaming)
    assert await check(told.store, {told.streaming: [*shown, c.TextDelta("t", " four")]}) == [lacking]
    assert await check(told.store, {told.streaming: [*shown, *text("more", id="u")]}) == [lacking]


async def test_a_shown_chunk_that_the_journal_lost_is_found() -> None:
    """Cut off at the end, where the numbers have no gap."""
    told = await tell()
    shown = [c.StartStep(), *text("one two three", id="t", open=True)]
    told.value.journal[told.streaming] = told.value.journal[told.streaming][:-1]
    assert await check(told.store, {told.streaming: shown}) == [
        Problem("what is stored does not hold all that was shown", told.session_id, told.streaming)
    ]


async def test_a_message_that_was_shown_must_be_there() -> None:
    """Unless nothing of it had any part yet."""
    told = await tell()
    assert await check(told.store, {"msg_gone": [c.StartStep()]}) == [
        Problem("it was shown, and is not stored", None, "msg_gone")
    ]
    assert await check(told.store, {"msg_gone": [c.Start("msg_gone")], "msg_none": []}) == []


async def test_what_is_no_stream_cannot_have_been_shown() -> None:
    """A mistake of the witness is said, not thrown."""
    told = await tell()
    sentence = "what was shown is no stream: text-delta: nothing is open as 't'"
    assert await check(told.store, {told.streaming: [c.TextDelta("t", "x")], "msg_gone": [c.TextDelta("t", "x")]}) == [
        Problem(sentence, told.session_id, told.streaming),
        Problem(sentence, None, "msg_gone"),
    ]


# `extends`, by table.

TEXT = {"type": "text", "text": "one", "state": "streaming"}
CALL = {"type": "tool-n", "toolCallId": "c", "state": "input-streaming", "input": {}, "rawInput": '{"a'}
READY = {"type": "tool-n", "toolCallId": "c", "state": "input-available", "input": {"a": 1}}
ASKED = {**READY, "state": "approval-requested", "approval": {"id": "x"}}
ANSWERED = {**READY, "state": "approval-responded", "approval": {"id": "x", "approved": True}}
DONE = {**READY, "state": "output-available", "output": 1}
GOING = {**DONE, "preliminary": True}
FAILED = {**READY, "state": "output-error", "errorText": "no"}
DENIED = {**READY, "state": "output-denied"}
DATA = {"type": "data-x", "id": "1", "data": 1}
SOURCE = {"type": "source-url", "sourceId": "s", "url": "u"}


@pytest.mark.parametrize(
    ("after", "before"),
    [
        ([], []),
        ([TEXT], []),
        ([TEXT, SOURCE], [TEXT]),
        ([{**TEXT, "text": "one two"}], [TEXT]),
        ([{**TEXT, "state": "done"}], [TEXT]),
        ([{**TEXT, "text": "one two", "state": "done", "providerMetadata": {"a": {}}}], [TEXT]),
        ([{**TEXT, "type": "reasoning", "text": "one!"}], [{**TEXT, "type": "reasoning"}]),
        ([{**CALL, "rawInput": '{"a": 1}', "input": {"a": 1}}], [CALL]),
        *(([later], [CALL]) for later in (READY, ASKED, ANSWERED, DONE, GOING, FAILED, DENIED)),
        *(([later], [READY]) for later in (ASKED, ANSWERED, DONE, GOING, FAILED, DENIED)),
        *(([later], [ASKED]) for later in (ANSWERED, DONE, GOING, FAILED, DENIED)),
        *(([later], [ANSWERED]) for later in (DONE, GOING, FAILED, DENIED)),
        *(([later], [GOING]) for later in (DONE, FAILED, {**GOING, "output": 2}, {**DONE, "output": 2})),
        ([{**DATA, "data": 2}], [DATA]),
    ],
)
def test_what_a_part_can_have_become(after: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """By further chunks."""
    assert extends(after, before)


@pytest.mark.parametrize(
    ("after", "before"),
    [
        ([], [TEXT]),
        ([SOURCE], [TEXT, SOURCE]),
        ([SOURCE, TEXT], [TEXT, SOURCE]),
        ([{**TEXT, "text": "on"}], [TEXT]),
        ([{**TEXT, "text": "two one"}], [TEXT]),
        ([{**TEXT, "type": "reasoning"}], [TEXT]),
        ([{**TEXT, "text": "one two", "state": "done"}], [{**TEXT, "state": "done"}]),
        ([TEXT], [{**TEXT, "state": "done"}]),
        ([{**CALL, "rawInput": '{"b'}], [CALL]),
        ([{**CALL, "rawInput": "{"}], [CALL]),
        ([{**CALL, "toolCallId": "d"}], [CALL]),
        ([{**CALL, "state": "thinking"}], [CALL]),
        ([{**READY, "state": "thinking"}], [READY]),
        *(([earlier], [READY]) for earlier in (CALL, {**READY, "input": {"a": 2}}, {**DONE, "input": {"a": 2}})),
        *(([earlier], [ASKED]) for earlier in (CALL, READY, {**ASKED, "approval": {"id": "y"}})),
        *(([earlier], [ANSWERED]) for earlier in (CALL, READY, ASKED)),
        *(([other], [DONE]) for other in (CALL, READY, ANSWERED, GOING, FAILED, DENIED, {**DONE, "output": 2})),
        *(([other], [FAILED]) for other in (CALL, READY, DONE, DENIED, {**FAILED, "errorText": "yes"})),
        *(([other], [DENIED]) for other in (READY, DONE, FAILED)),
        *(([other], [GOING]) for other in (CALL, READY, ANSWERED, DENIED, {**DONE, "input": {}})),
        ([{**DATA, "data": 2, "id": "2"}], [DATA]),
        ([{**DATA, "data": 2, "more": True}], [DATA]),
        ([{**DATA, "type": "data-y"}], [DATA]),
        ([{"type": "data-x", "data": 2}], [{"type": "data-x", "data": 1}]),
        ([{**SOURCE, "url": "v"}], [SOURCE]),
        ([{"type": "text", "text": "one"}], [{"type": "step-start"}]),
    ],
)
def test_what_a_part_cannot_have_become(after: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """Shorter, other, earlier, or changed after its end."""
    assert not extends(after, before)


@given(st.integers(0, 100_000), st.data())
def test_a_stream_extends_each_of_its_beginnings(seed: int, draw: st.DataObject) -> None:
    """Any stream, cut anywhere: what the whole became is something the beginning can have become."""
    chunks = random_stream(seed)
    cut = draw.draw(st.integers(0, len(chunks)))
    whole, begun = Fold("m1"), Fold("m1")
    for place, chunk in enumerate(chunks):
        whole.apply(chunk)
        if place < cut:
            begun.apply(chunk)
    assert extends(whole.parts, begun.parts)


def test_the_transcript_of_a_turn_extends_itself_step_by_step() -> None:
    """A reply with reasoning, a call, data and an answer, chunk by chunk against the whole."""
    chunks = reply(
        step(reasoning("the weather"), tool_call("weather", {"city": "Oslo"}), tool_output({"celsius": 3})),
        step(data("progress", 1, id="p"), data("progress", 2, id="p"), text("Three degrees.")),
    )
    whole, begun = Fold("m1"), Fold("m1")
    for chunk in chunks:
        whole.apply(chunk)
    for chunk in chunks:
        assert extends(whole.parts, begun.parts)
        begun.apply(chunk)
    assert begun.parts == whole.parts


def test_a_state_as_a_store_gives_it_is_a_value() -> None:
    """What the cases above rely on."""
    assert replace(SessionState("a", "b", 1), open_turn_id=None) == SessionState("a", None, 1)
