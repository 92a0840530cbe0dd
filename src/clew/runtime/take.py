"""Taking a session: the one step by which everybody gets to a run, and how what was left open is settled by it.

A prompt, the queue, an interrupt, an answer, ``continue``, a trigger and a schedule all take the session by
:func:`plan_take`: in one unit with whatever the taker writes, what is open is given a truthful end and the epoch is
raised. So no request to a model holds a call without a result, and nobody who had the session before can write to it.

A call that waits for a human is not left open. What a call did before it was cut off nobody knows, and its result says
so, and who cut it off; it is never run again.

Everything here is a plan: nothing is read, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clew.store.unit import (
    EpochIs,
    Guard,
    HeadIs,
    InsertMessage,
    LinkMessage,
    MoveHead,
    NoOpenTurn,
    OpenTurn,
    OpenTurnIs,
    PatchSession,
    PutParts,
    SealMessage,
    SetEpoch,
    SetHidden,
    SetTurn,
    Unit,
    Write,
)
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow, PartRow, seal_of
from clew.transcript.part import close_call
from clew.transcript.project import Hidden
from clew.transcript.session import Model, SessionState
from clew.transcript.turn import Turn
from clew.transcript.turn_state import OPEN, TurnStatus
from clew.transcript.wait import is_answered, waits_of

__all__ = [
    "LOST",
    "RESTART",
    "SHUTDOWN",
    "CutOff",
    "Standing",
    "plan_end",
    "plan_open",
    "plan_refusal",
    "plan_settle",
    "plan_take",
]

_UNKNOWN: Final = "its effects are unknown"
RESTART: Final = f"aborted by host restart; {_UNKNOWN}"
LOST: Final = f"aborted; {_UNKNOWN}"
"""For a turn whose run could not store its end, found open while the host lives."""
SHUTDOWN: Final = "the host is shutting down"
"""Why runs are aborted when an engine is closed."""


class CutOff(msgspec.Struct, frozen=True):
    """A message with calls that have no result, and the turn that holds it."""

    message: MessageRow
    calls: tuple[PartRow, ...]
    turn: Turn | None


class Standing(msgspec.Struct, frozen=True):
    """How a session stands in the store: its state, its open turn with the messages of it, and what was cut off.

    ``sealed`` names the messages of the session that have a seal; it is known where a turn is open.
    """

    session_id: str
    state: SessionState = SessionState()
    open: LineTurn | None = None
    cut_off: tuple[CutOff, ...] = ()
    sealed: frozenset[str] = frozenset()

    @property
    def waiting(self) -> Turn | None:
        """The open turn, while a human is awaited.

        One whose requests are all answered waits for nobody: what should have gone on with it did not.
        """
        turn = self.open.turn if self.open is not None else None
        return turn if turn is not None and turn.status == "waiting" and not is_answered(waits_of(turn)) else None

    @property
    def next_epoch(self) -> int:
        return self.state.epoch + 1

    @property
    def head_turn_id(self) -> str | None:
        """Where the head is once everything is settled: an open turn that is ended becomes it."""
        ended = self.open is not None and self.waiting is None
        return self.open.turn.id if self.open is not None and ended else self.state.head_turn_id


def plan_settle(standing: Standing, now: int, left_open: str, *, spared: Turn | None = None) -> tuple[Write, ...]:
    """The writes that end what no run is going to end: calls without a result, and the open turn unless it waits.

    ``left_open`` says why a turn that nobody runs is open. ``spared`` goes on, so it is left alone with all its waits.
    """
    spared = spared or standing.waiting
    asked = {wait.tool_call_id for wait in waits_of(spared)}
    writes: list[Write] = []
    resealed: set[str] = set()
    for one in standing.cut_off:
        calls = [part for part in one.calls if part.tool_call_id not in asked]
        # What is damaged is left as it is: a new seal would make it pass for what was stored. A model is sent a stub.
        if calls and one.message.damage is None:
            put, seal = _close_calls(one.message, calls, _words(one.turn, left_open), now)
            # A message that its turn still goes on with grows: sealed now, it would read as changed afterwards.
            grows = spared is not None and one.turn is not None and one.turn.id == spared.id
            writes += (put,) if grows and one.message.id not in standing.sealed else (put, seal)
            resealed.add(one.message.id)
    if standing.open is not None and spared is None:
        turn, rows = standing.open.turn, standing.open.messages
        error = {"code": "interrupted", "message": left_open}
        writes += plan_end(turn.id, "failed", now, {"error": error, "waiting": []})
        # Nobody goes on with what it had begun to say. Sealed, it shows when somebody does all the same.
        unsealed = [row for row in rows if row.id not in standing.sealed | resealed and row.damage is None]
        writes += [SealMessage(row.id, row.seal) for row in unsealed]
    return tuple(writes)


def _words(turn: Turn | None, left_open: str) -> str:
    """Who cut a call off, as its turn tells it. That is stored, so a restart in between changes nothing about it."""
    if turn is None:
        return LOST
    if turn.status in OPEN:
        return left_open
    if turn.status == "aborted":
        stopped = turn.stopped or "aborted"
        return RESTART if stopped == SHUTDOWN else f"{stopped}; {_UNKNOWN}"
    if turn.status == "failed":
        return (
            RESTART
            if turn.error.get("code") == "interrupted"
            else f"its turn failed before it had a result; {_UNKNOWN}"
        )
    return LOST


def _close_calls(message: MessageRow, calls: Sequence[PartRow], reason: str, now: int) -> tuple[PutParts, SealMessage]:
    """The writes that end these calls of one message as errors, and seal it anew."""
    ended = {
        part.index: msgspec.structs.replace(part, data=close_call(part.data, reason), updated_at=now) for part in calls
    }
    return (
        PutParts(message.id, tuple(ended[index] for index in sorted(ended))),
        SealMessage(message.id, seal_of(ended.get(part.index, part).data for part in message.parts)),
    )


def plan_end(turn_id: str, status: TurnStatus, now: int, data: dict[str, Any] | None = None) -> tuple[Write, ...]:
    """The writes that end a turn that was answered, in whatever way: it becomes the head."""
    return SetTurn(turn_id, status, settled_at=now, data=data or {}), MoveHead(turn_id, now, "turn")


def plan_refusal(turn_id: str, message_ids: Sequence[str], now: int, data: dict[str, Any]) -> tuple[Write, ...]:
    """The writes that end a turn refused before any model call: the head stays, its messages are hidden."""
    hidden: dict[str, Hidden | None] = {message_id: Hidden(now, "refused") for message_id in message_ids}
    return SetTurn(turn_id, "refused", settled_at=now, data=data), SetHidden(hidden)


def plan_take(
    standing: Standing,
    now: int,
    writes: Sequence[Write],
    *,
    before: Sequence[Write] = (),
    guards: Sequence[Guard] = (),
    goes_on: Turn | None = None,
    left_open: str = LOST,
) -> Unit:
    """The unit that takes a session: everything settled, the next epoch, and what the taker writes.

    ``goes_on`` is the open turn that the taker goes on with, or ends itself. What has to be there for any of it, such
    as the session, is written ``before``. Refused when the session was taken, or its head moved, since it was read.
    """
    # A turn that waits for a human is nobody's to take but for who goes on with it: then there must be no open one.
    turn = goes_on or (standing.open.turn if standing.open is not None and standing.waiting is None else None)
    held: tuple[Guard, ...] = (
        EpochIs(standing.state.epoch),
        HeadIs(standing.state.head_turn_id),
        NoOpenTurn() if turn is None else OpenTurnIs(turn.id),
    )
    settled = plan_settle(standing, now, left_open, spared=goes_on)
    # One unit: a kill leaves either the session as it was, or the taker's turn with nothing open before it.
    taken = (*before, SetEpoch(standing.next_epoch), *settled, *writes)
    return Unit(standing.session_id, taken, (*held, *guards), sync="power")


def plan_open(
    standing: Standing,
    turn_id: str,
    message: MessageRow,
    model: Model | None = None,
    *more: Write,
    before: Sequence[Write] = (),
    below: str | None = None,
) -> Unit:
    """Take the session for a new turn and store the user message that begins it.

    The turn hangs below the head; where ``before`` moves that, below the turn it is moved to.
    """
    now, parent = message.created_at, below if before else standing.head_turn_id
    writes: tuple[Write, ...] = (
        OpenTurn(Turn(id=turn_id, session_id=message.session_id, parent_turn_id=parent, created_at=now)),
        InsertMessage(message),
        SealMessage(message.id, message.seal),
        LinkMessage(turn_id, message.id),
        PatchSession(updated_at=now, model=model),
        *more,
    )
    return plan_take(standing, now, writes, before=before)
