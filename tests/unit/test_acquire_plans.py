"""Taking a session, as a plan: what is settled, in whose words, under which guards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from clew.session.acquire.acquire import LOST, RESTART, SHUTDOWN, plan_acquire, plan_open, plan_settle
from clew.session.acquire.loaded_session import CutOff, LoadedSession
from clew.session.prompt.queue import plan_fire
from clew.store.unit import (
    Dequeue,
    EpochIs,
    HeadIs,
    LinkMessage,
    MoveHead,
    NoOpenTurn,
    OpenTurn,
    OpenTurnIs,
    PatchMessage,
    PatchSession,
    PutParts,
    SealMessage,
    SetEpoch,
    SetTurn,
    StillQueued,
    Unit,
)
from clew.transcript.damage import seal_of
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.session import SessionState
from clew.transcript.turn import Turn
from clew.transcript.wait import Wait, with_waits

NOW = 50
DIG = {"type": "tool-dig", "toolCallId": "c1", "state": "input-available", "input": {"deep": True}}
ASK = {"type": "tool-ask", "toolCallId": "c2", "state": "approval-requested", "input": {}, "approval": {"id": "apr"}}


def turn(status: Any = "aborted", **data: Any) -> Turn:
    return Turn(id="t1", session_id="s", parent_turn_id=None, created_at=1, status=status, data=data)


def row(*parts: dict[str, Any], id: str = "a1", role: Any = "assistant", **metadata: Any) -> MessageRow:
    held = tuple(PartRow(f"p{n}", n, part, 1, 1) for n, part in enumerate(parts))
    return MessageRow(id, "s", role, 1, 1, metadata, held)


def cut_off(held: Turn | None, *parts: dict[str, Any]) -> CutOff:
    message = row(*(parts or (DIG,)))
    return CutOff(message, message.parts, held)


def at_rest(*cut: CutOff) -> LoadedSession:
    return LoadedSession("s", SessionState("t1", None, 7), None, cut)


def left_open(held: Turn, *parts: dict[str, Any], sealed: frozenset[str] = frozenset()) -> LoadedSession:
    cut = cut_off(held, *parts)
    return LoadedSession("s", SessionState("t0", held.id, 7), LineTurn(held, (cut.message,)), (cut,), sealed)


def waiting(*answers: Any) -> Turn:
    waits = tuple(Wait(f"c{n + 2}", "ask", "approval", 1, "d", "apr", answer) for n, answer in enumerate(answers))
    return turn("waiting", **with_waits(waits))


def words(writes: Sequence[Any]) -> list[str]:
    return [part.data["errorText"] for write in writes if isinstance(write, PutParts) for part in write.parts]


@pytest.mark.rule("SR-9", "SR-4")
@pytest.mark.parametrize(
    ("held", "said"),
    [
        (turn("aborted", stopped="aborted by the user"), "aborted by the user; its effects are unknown"),
        (
            turn("aborted", stopped="interrupted by a new prompt"),
            "interrupted by a new prompt; its effects are unknown",
        ),
        (turn("aborted"), "aborted; its effects are unknown"),
        (turn("aborted", stopped=SHUTDOWN), RESTART),
        (turn("failed", error={"code": "interrupted"}), RESTART),
        (
            turn("failed", error={"code": "model_failed"}),
            "its turn failed before it had a result; its effects are unknown",
        ),
        (turn("completed"), LOST),
        (None, LOST),
    ],
)
def test_a_call_says_who_cut_it_off(held: Turn | None, said: str) -> None:
    """The words come from the turn that holds the call, whoever settles it and whenever."""
    for why in (LOST, RESTART):
        assert words(plan_settle(at_rest(cut_off(held)), NOW, why)) == [said]


def test_a_closed_call_keeps_its_place_and_is_sealed_with_the_rest() -> None:
    """Only the call is written again; the seal is of the whole message."""
    said = {"type": "text", "text": "well"}
    message = row(said, DIG)
    cut = CutOff(message, message.parts[1:], turn("aborted"))
    ended = {**DIG, "state": "output-error", "errorText": LOST}
    part = msgspec.structs.replace(message.parts[1], data=ended, updated_at=NOW)
    assert plan_settle(at_rest(cut), NOW, RESTART) == (
        PutParts("a1", (part,)),
        SealMessage("a1", seal_of([said, ended])),
    )


def test_a_damaged_message_is_left_as_it_is() -> None:
    """A new seal would make it pass for what was stored."""
    message = row(DIG, damaged="it does not fit its seal")
    assert plan_settle(at_rest(CutOff(message, message.parts, turn())), NOW, LOST) == ()


@pytest.mark.rule("SR-4")
def test_an_open_turn_that_nobody_runs_has_failed_and_becomes_the_head() -> None:
    """What it had begun to say is sealed; what was sealed before is not sealed again."""
    loaded = left_open(turn("running"))
    assert loaded.head_turn_id == "t1"
    error = {"error": {"code": "interrupted", "message": RESTART}, "waiting": []}
    settled = (SetTurn("t1", "failed", settled_at=NOW, data=error), MoveHead("t1", NOW, "turn"))
    assert plan_settle(loaded, NOW, RESTART)[2:] == settled
    said = {"type": "text", "text": "half a"}
    mute = left_open(turn("running"), said)
    mute = msgspec.structs.replace(mute, cut_off=())
    assert plan_settle(mute, NOW, RESTART) == (*settled, SealMessage("a1", seal_of([said])))
    assert plan_settle(msgspec.structs.replace(mute, sealed=frozenset({"a1"})), NOW, RESTART) == settled


@pytest.mark.rule("SR-4", "PM-6")
def test_what_waits_for_a_human_is_not_settled() -> None:
    """Its requests stay; another call of the step that was cut off does not."""
    loaded = left_open(waiting(None), DIG, ASK)
    assert loaded.waiting is not None
    assert loaded.head_turn_id == "t0"
    assert [part.tool_call_id for write in plan_settle(loaded, NOW, LOST) for part in getattr(write, "parts", ())] == [
        "c1"
    ]
    assert left_open(waiting({"approved": True}), ASK).waiting is None


@pytest.mark.rule("SR-9", "SR-6")
def test_a_session_is_taken_by_one_unit_with_all_its_guards() -> None:
    """The epoch rises first, then what was open is settled, then comes what the taker writes."""
    own = PatchSession(updated_at=NOW)
    taken = plan_acquire(at_rest(cut_off(turn())), NOW, (own,))
    assert (taken.session_id, taken.sync) == ("s", "power")
    assert taken.guards == (EpochIs(7), HeadIs("t1"), NoOpenTurn())
    assert [type(write) for write in taken.writes] == [SetEpoch, PutParts, SealMessage, PatchSession]
    assert taken.writes[0] == SetEpoch(8)
    dead = plan_acquire(left_open(turn("running")), NOW, (own,))
    assert dead.guards == (EpochIs(7), HeadIs("t0"), OpenTurnIs("t1"))


@pytest.mark.rule("SR-9", "PM-6")
def test_a_turn_that_waits_is_taken_only_by_who_goes_on_with_it() -> None:
    """Anybody else is refused by the guard; its own calls are left to the run that goes on."""
    held = waiting({"approved": True}, None)
    loaded = left_open(held, ASK)
    assert plan_acquire(loaded, NOW, ()).guards == (EpochIs(7), HeadIs("t0"), NoOpenTurn())
    taken = plan_acquire(loaded, NOW, (), goes_on=held)
    assert taken == Unit("s", (SetEpoch(8),), (EpochIs(7), HeadIs("t0"), OpenTurnIs("t1")), sync="power")


def test_a_prompt_opens_its_turn_below_the_head_there_will_be() -> None:
    """Below a turn that is settled by the taking; below where ``before`` moves the head, if it does."""
    said = row({"type": "text", "text": "hi"}, id="u2", role="user")

    def parent(unit: Unit) -> str | None:
        return next(write.turn.parent_turn_id for write in unit.writes if isinstance(write, OpenTurn))

    assert parent(plan_open(at_rest(), "t2", said)) == "t1"
    assert parent(plan_open(left_open(turn("running")), "t2", said)) == "t1"
    moved = plan_open(at_rest(), "t2", said, before=(MoveHead("t0", NOW, "rewind"),), below="t0")
    assert parent(moved) == "t0"
    assert moved.writes[:2] == (MoveHead("t0", NOW, "rewind"), SetEpoch(8))


@pytest.mark.rule("SR-7", "SR-9")
def test_firing_a_queued_message_takes_the_session_and_the_message_at_once() -> None:
    """It leaves the queue in the unit that opens its turn, and only while it is still there."""
    queued = row({"type": "text", "text": "hi"}, id="u2", role="user", queued_at=3, model={"a": 1})
    opened = Turn(id="t2", session_id="s", parent_turn_id="t1", created_at=NOW)
    fired = plan_fire(at_rest(cut_off(turn())), queued, queued, opened)
    assert fired.guards == (EpochIs(7), HeadIs("t1"), NoOpenTurn(), StillQueued("u2", seal=queued.seal))
    assert words(fired.writes) == [LOST]
    assert fired.writes[3:] == (
        Dequeue("u2"),
        PatchMessage("u2", NOW, {}, created_at=NOW),
        OpenTurn(opened),
        LinkMessage("t2", "u2"),
        PatchSession(updated_at=NOW),
    )


def test_what_a_hook_changed_of_a_queued_message_is_sealed_anew() -> None:
    """Only changed metadata is written; changed parts with a new seal."""
    queued = row({"type": "text", "text": "hi"}, id="u2", role="user", model={"a": 1})
    changed = row({"type": "text", "text": "hi there"}, id="u2", role="user", model={"a": 1}, seen=True)
    opened = Turn(id="t2", session_id="s", parent_turn_id="t1", created_at=NOW)
    assert plan_fire(at_rest(), queued, changed, opened).writes[1:5] == (
        Dequeue("u2"),
        PatchMessage("u2", NOW, {"seen": True}, created_at=NOW),
        PutParts("u2", changed.parts),
        SealMessage("u2", seal_of([{"type": "text", "text": "hi there"}])),
    )
