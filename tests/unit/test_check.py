"""The judge: it is silent over a sound store, and names what is wrong with any other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from clew.errors import InternalError
from clew.ids import Mint
from clew.session.history.check import Problem, check
from clew.store.base import Damage, FullSession
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.unit import Dequeue, Enqueue, LinkMessage, MoveHead, OpenTurn, PatchMessage, SetTurn
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe, settled, user_row
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.pruned import Pruned
from clew.transcript.turn import HeadMove, Turn
from tests.unit.conversation_stores import SpoiledStore, Told, replace, tell

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
    assert len(told.rows.journal[told.streaming]) == 3


async def test_rewinds_resends_compactions_refusals_and_queues_are_sound() -> None:
    """Everything a history can hold, with its projections written."""
    store, clock = SpoiledStore(), FakeClock()
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
    await scribe.commit(*settled(waiting), Enqueue(waiting.id, clock.now_ms()))
    await scribe.commit(*settled(cancelled), Enqueue(cancelled.id, clock.now_ms()))
    await scribe.commit(Dequeue(cancelled.id), PatchMessage(cancelled.id, clock.now_ms(), {"cancelled_at": 1}))
    await told.hide()
    assert await check(store) == []
    messages = await store.load_messages(scribe.session_id)
    assert {row.metadata.get("hidden_by") for row in messages} == {None, "refused", "compaction"}


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
        OpenTurn(turn), *settled(marker), LinkMessage(turn.id, marker.id), MoveHead(turn.id, now, "compaction")
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
    part = told.rows.messages[reply_].parts[2]
    told.set_part(reply_, 2, data={**part.data, "state": "thinking"})
    return [
        ("a tool call is in state 'thinking', which does not exist", part.id),
        ("it was changed after it had settled: its seal does not match", reply_),
    ]


@case
def a_settled_message_that_was_changed(told: Told) -> list[tuple[str, str | None]]:
    reply_ = told.first[2]
    part = told.rows.messages[reply_].parts[1]
    told.set_part(reply_, 1, data={**part.data, "text": "hi There"})
    return [("it was changed after it had settled: its seal does not match", reply_)]


@case
def a_settled_message_that_lost_a_part(told: Told) -> list[tuple[str, str | None]]:
    reply_ = told.first[2]
    told.set_message(reply_, parts=told.rows.messages[reply_].parts[:1])
    return [("it was changed after it had settled: its seal does not match", reply_)]


@case
def a_parent_that_is_not_there(told: Told) -> list[tuple[str, str | None]]:
    turn_id = told.second[0]
    told.set_turn(turn_id, parent_turn_id="trn_gone")
    return [
        ("its parent trn_gone is missing", turn_id),
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
    return [(f"its nearest compaction is recorded as {told.first[0]}", told.open_turn)]


@case
def a_compaction_that_does_not_note_itself(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.second[0], kind="compaction")
    return [("its nearest compaction is recorded as None", told.second[0])]


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
    told.rows.links[told.first[0]] += ("msg_gone",)
    return [("it contains msg_gone, which is missing", told.first[0])]


@case
def a_head_that_points_at_nothing(told: Told) -> list[tuple[str, str | None]]:
    told.set_state(head_turn_id="trn_gone")
    return [
        ("the head points at a turn that is missing", "trn_gone"),
        ("the open turn is not below the head", told.open_turn),
        (f"the reflog ends at {told.second[0]}, the head is trn_gone", "trn_gone"),
    ]


@case
def an_open_turn_that_is_not_there(told: Told) -> list[tuple[str, str | None]]:
    told.set_state(open_turn_id="trn_gone")
    return [
        ("it is running, but the session's open turn is trn_gone", told.open_turn),
        ("the open turn is missing", "trn_gone"),
    ]


@case
def an_open_turn_that_is_settled(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.open_turn, status="completed", settled_at=1)
    return [("the open turn is completed", told.open_turn)]


@case
def an_open_turn_somewhere_else(told: Told) -> list[tuple[str, str | None]]:
    told.set_turn(told.open_turn, parent_turn_id=told.first[0], depth=1)
    return [("the open turn is not below the head", told.open_turn)]


@case
def a_head_move_with_a_wrong_number(told: Told) -> list[tuple[str, str | None]]:
    told.rows.moves[2] = replace(told.rows.moves[2], seq=5)
    return [("head move 2 is numbered 5", told.second[0])]


@case
def a_head_move_that_starts_elsewhere(told: Told) -> list[tuple[str, str | None]]:
    told.rows.moves[2] = replace(told.rows.moves[2], from_turn_id=None)
    return [(f"head move 2 starts at None, the one before ended at {told.first[0]}", told.second[0])]


@case
def a_head_that_moved_without_a_word(told: Told) -> list[tuple[str, str | None]]:
    del told.rows.moves[2]
    return [(f"the reflog ends at {told.first[0]}, the head is {told.second[0]}", told.second[0])]


@case
def a_queued_message_that_does_not_say_so(told: Told) -> list[tuple[str, str | None]]:
    row = user_row(told.scribe.mint, told.session_id, "later", 1)
    told.rows.messages[row.id] = row
    told.rows.queue[row.id] = Enqueue(row.id, 7)
    return [("its queued_at is None, the queue says 7", row.id)]


@case
def a_message_that_says_it_is_queued_and_is_not(told: Told) -> list[tuple[str, str | None]]:
    told.set_message(told.first[1], metadata={"queued_at": 7})
    return [("its queued_at is 7, the queue says None", told.first[1])]


@case
def a_message_in_a_turn_and_in_the_queue(told: Told) -> list[tuple[str, str | None]]:
    told.set_message(told.question, metadata={"queued_at": 7})
    told.rows.queue[told.question] = Enqueue(told.question, 7)
    return [("it is in a turn and in the queue", told.question)]


@case
def a_message_that_belongs_nowhere(told: Told) -> list[tuple[str, str | None]]:
    row = user_row(told.scribe.mint, told.session_id, "lost", 1)
    told.rows.messages[row.id] = row
    told.rows.seals[row.id] = row.seal
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
    told.rows.moves[3] = HeadMove(3, told.session_id, told.second[0], None, at, "rewind")
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
    told.rows.pruned += prunes
    return [
        ("prune 2 names its part 1, which has no output", reply_),
        ("prune 3 names its part 9, which has no output", reply_),
        ("prune 3 names its part 1, which has no output", other),
        ("prune 4 names its part 0, which has no output", "msg_gone"),
    ]


@case
def a_journal_with_a_gap(told: Told) -> list[tuple[str, str | None]]:
    first, _, third = told.rows.journal[told.streaming]
    told.rows.journal[told.streaming] = (first, third)
    return [(f"the journal has a gap: [{first.n}, {third.n}]", told.streaming)]


@case
def a_journal_that_cannot_be_applied(told: Told) -> list[tuple[str, str | None]]:
    first, *rest = told.rows.journal[told.streaming]
    told.rows.journal[told.streaming] = (first._replace(part=9), *rest)
    return [("text-delta: no part 9", None)]


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
    rows = await told.store.spoil(other.session_id)
    rows.session = replace(rows.session, total_tokens=1)
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

    class Undecodable(SpoiledStore):
        async def find_full_session(self, session_id: str) -> FullSession | None:
            whole = await super().find_full_session(session_id)
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

    class Unreadable(SpoiledStore):
        bad = ""

        async def find_full_session(self, session_id: str) -> FullSession | None:
            if session_id == self.bad:
                raise InternalError("it is gone", turn_id="trn_1", message_id="msg_1")
            return await super().find_full_session(session_id)

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
        async def find_full_session(self, session_id: str) -> None:
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
    before = repr(told.rows)
    assert await check(told.store) == await check(told.store)
    assert repr(told.rows) == before
