"""Acquiring a session: what was left open is settled, and the epoch is raised. The single step before every run.

Prompts, the queue, interrupts, answers, ``continue``, triggers and schedules all acquire the session with
:func:`plan_acquire`: in one unit with the caller's own writes, everything open is settled and the epoch is raised. So
no model request contains a call without a result, and a previous run can no longer write. :func:`settle_session`
acquires it without a run; everything else here only plans.

A call never stays open unless it waits for a human. What an interrupted call did before the interruption is unknown;
its result says so, with the cause, and it is never run again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from clew.errors import SessionBusy
from clew.session.acquire.loaded_session import LoadedSession
from clew.store import unit as u
from clew.store.base import Store
from clew.store.unit import MoveHead, PutParts, SealMessage, SetHidden, SetTurn, Write
from clew.transcript.damage import seal_of
from clew.transcript.incomplete_step import is_whole_answer
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import close_call, is_subagent_call
from clew.transcript.projection import Hidden
from clew.transcript.session import SessionState
from clew.transcript.turn import CHUNKS, Turn, id_end
from clew.transcript.turn_state import OPEN, TurnStatus
from clew.transcript.wait import waits_of

__all__ = [
    "BY_PARENT",
    "BY_USER",
    "GONE",
    "INTERRUPTED",
    "LOST",
    "RESTART",
    "SHUTDOWN",
    "plan_acquire",
    "plan_end",
    "plan_fence",
    "plan_free",
    "plan_open",
    "plan_refusal",
    "plan_settle",
    "settle_session",
    "with_chunks",
]


_UNKNOWN: Final = "its effects are unknown"
_NOT_RUN: Final = "it was not run"
"""For a call whose arguments were still being written, so it cannot have run."""
RESTART: Final = f"aborted by host restart; {_UNKNOWN}"
GONE: Final = f"aborted: the replica that ran it is gone; {_UNKNOWN}"
LOST: Final = f"aborted; {_UNKNOWN}"
"""For a turn whose run could not store its end, found open while the process lives."""
SHUTDOWN: Final = "the host is shutting down"
"""The reason for aborting runs when an engine is closed."""
BY_USER: Final = "aborted by the user"
INTERRUPTED: Final = "interrupted by a new prompt"
BY_PARENT: Final = "aborted by parent"


def plan_settle(loaded: LoadedSession, now: int, left_open: str, *, spared: Turn | None = None) -> tuple[Write, ...]:
    """Return the writes that close what has no run: calls without a result, and the open turn unless it waits.

    ``left_open`` says why such a turn is open. ``spared`` continues, so it is left alone with all its requests.
    """
    spared = spared or loaded.waiting
    waiting = {wait.tool_call_id for wait in waits_of(spared)}
    writes: list[Write] = []
    resealed: set[str] = set()
    for interrupted in loaded.cut_off:
        message, turn = interrupted.message, interrupted.turn
        calls = [part for part in interrupted.calls if part.tool_call_id not in waiting]
        # A damaged message is left as it is: a new seal would make it look intact. The model is sent a stub.
        if calls and message.damage is None:
            reason = _reason_of(turn, left_open)
            ended: dict[int, PartRow] = {}
            for part in calls:
                words = reason.replace(_UNKNOWN, _NOT_RUN) if part.tool_state == "input-streaming" else reason
                if words == reason and _was_stopped(turn) and is_subagent_call(part.data):
                    words = f"{BY_PARENT}: {reason}"
                ended[part.index] = msgspec.structs.replace(part, data=close_call(part.data, words), updated_at=now)
            put = PutParts(message.id, tuple(ended[index] for index in sorted(ended)))
            seal = SealMessage(message.id, seal_of(ended.get(p.index, p).data for p in message.parts))
            # A message that its turn still extends is not sealed: it would read as changed afterwards.
            grows = spared is not None and turn is not None and turn.id == spared.id
            writes += (put,) if grows and message.id not in loaded.sealed else (put, seal)
            if turn is not None and turn.data.get(CHUNKS):
                # No chunk has this change: a client that follows the turn gets the message again.
                writes.append(SetTurn(turn.id, None, data={CHUNKS: None}))
            resealed.add(message.id)
    if loaded.open is not None and spared is None:
        turn, rows = loaded.open.turn, loaded.open.messages
        if turn.status == "running" and is_whole_answer(rows, loaded.steps):
            # The answer is complete; only the end of the turn was not stored.
            unstopped = {} if turn.stopped is None else {"stopped": None}
            writes += plan_end(turn.id, "completed", now, {"waiting": [], **unstopped})
        elif turn.stopped is not None:
            # It was stopped before the process died.
            writes += plan_end(turn.id, "aborted", now, {"waiting": []})
        else:
            error = {"code": "interrupted", "message": left_open}
            writes += plan_end(turn.id, "failed", now, {"error": error, "waiting": []})
        if loaded.open_above_head:
            writes = [write for write in writes if not isinstance(write, MoveHead)]
        # Its unfinished messages are final. A seal reveals any later change.
        unsealed = [row for row in rows if row.id not in loaded.sealed | resealed and row.damage is None]
        writes += [SealMessage(row.id, row.seal) for row in unsealed]
    return tuple(writes)


def _was_stopped(turn: Turn | None) -> bool:
    """Return whether a user or another run ended the turn: that stopped its subagents, too."""
    if turn is None or (turn.status not in OPEN and turn.status != "aborted"):
        return False
    return turn.stopped not in (None, SHUTDOWN, BY_PARENT)


def _reason_of(turn: Turn | None, left_open: str) -> str:
    """Return why a call was interrupted, from its stored turn, so that a restart in between changes nothing."""
    if turn is None:
        return LOST
    if turn.status in OPEN and turn.stopped is None:
        return left_open
    if turn.status in OPEN or turn.status == "aborted":
        stopped = turn.stopped or "aborted"
        return RESTART if stopped == SHUTDOWN else f"{stopped}; {_UNKNOWN}"
    if turn.status == "failed":
        return (
            RESTART
            if turn.error.get("code") == "interrupted"
            else f"its turn failed before it had a result; {_UNKNOWN}"
        )
    return LOST


def plan_end(turn_id: str, status: TurnStatus, now: int, data: dict[str, Any] | None = None) -> tuple[Write, ...]:
    """Return the writes that end an answered turn, in whatever state: it becomes the head."""
    return SetTurn(turn_id, status, settled_at=now, data=data or {}), MoveHead(turn_id, now, "turn")


def with_chunks(writes: Sequence[Write], counts: dict[str, int], message_id: str, last_n: int) -> list[Write]:
    """Return the writes that end a run on a message; its turn stores the number of the last chunk of each message.

    ``counts`` has those of earlier messages, and gets this one.
    """
    counts[id_end(message_id)] = last_n
    return [
        msgspec.structs.replace(one, data={**one.data, CHUNKS: {**counts}}) if isinstance(one, SetTurn) else one
        for one in writes
    ]


def plan_refusal(
    turn_id: str, message_ids: Sequence[str], now: int, data: dict[str, Any], *, resent: bool, on_head: bool
) -> tuple[Write, ...]:
    """Return the writes that end a turn refused before any model call: the head stays, its messages are hidden.

    A ``resent`` turn stays unanswered and the head, which a compaction may have moved off it.
    """
    if resent:
        unanswered = SetTurn(turn_id, "unanswered", settled_at=now, data=data)
        return (unanswered,) if on_head else (unanswered, MoveHead(turn_id, now, "turn"))
    hidden: dict[str, Hidden | None] = {message_id: Hidden(now, "refused") for message_id in message_ids}
    return SetTurn(turn_id, "refused", settled_at=now, data=data), SetHidden(hidden)


def plan_acquire(
    loaded: LoadedSession,
    now: int,
    writes: Sequence[u.Write],
    *,
    before: Sequence[u.Write] = (),
    guards: Sequence[u.Guard] = (),
    goes_on: Turn | None = None,
    left_open: str = LOST,
    runner: str | None = None,
) -> u.Unit:
    """Return the unit that acquires a session: everything settled, the next epoch, and the caller's writes.

    ``goes_on`` is the open turn that the caller resumes, or ends itself. ``before`` is written first, for example the
    session itself. Refused if the session was acquired or its head moved since it was read. ``runner`` is the replica
    of the new run, in a shared store.
    """
    # Only a caller that resumes or ends a waiting turn may acquire it: for any other there must be no open turn.
    turn = goes_on or (loaded.open.turn if loaded.open is not None and loaded.waiting is None else None)
    own_guards: tuple[u.Guard, ...] = (
        u.EpochIs(loaded.state.epoch),
        u.HeadIs(loaded.state.head_turn_id),
        u.NoOpenTurn() if turn is None else u.OpenTurnIs(turn.id),
    )
    settled = plan_settle(loaded, now, left_open, spared=goes_on)
    # One unit: after a crash there is either the session as it was, or the new turn with nothing open before it.
    all_writes = (*before, u.SetEpoch(loaded.next_epoch), *settled, *writes)
    if runner is not None:
        all_writes += (u.SetRunner(runner),)
        own_guards += (u.NotRunElsewhere(runner), u.LeaseHolds(runner))
    return u.Unit(loaded.session_id, all_writes, (*own_guards, *guards), sync="power")


def plan_fence(session_id: str, state: SessionState, runner: str) -> u.Unit:
    """Return the unit that acquires a session as it is: for an operation without a run, or from a dead replica before
    its state is read. Later writes of that replica are refused, so nothing is added to what is about to be settled."""
    turn = u.NoOpenTurn() if state.open_turn_id is None else u.OpenTurnIs(state.open_turn_id)
    guards = (u.EpochIs(state.epoch), turn, u.NotRunElsewhere(runner), u.LeaseHolds(runner))
    return u.Unit(session_id, (u.SetEpoch(state.epoch + 1), u.SetRunner(runner)), guards, sync="power")


def plan_free(session_id: str, epoch: int) -> u.Unit:
    """Return the unit that frees a session from an operation without a run, at its end or to end it, in whichever
    replica. The operation can write nothing after this."""
    writes = (u.SetEpoch(epoch + 1), u.SetRunner(None))
    return u.Unit(session_id, writes, (u.EpochIs(epoch), u.NoOpenTurn()), sync="power")


def plan_open(
    loaded: LoadedSession,
    turn_id: str,
    message: MessageRow,
    *more: u.Write,
    before: Sequence[u.Write] = (),
    below: str | None = None,
    runner: str | None = None,
) -> u.Unit:
    """Return the unit that acquires the session for a new turn and stores the user message that starts it.

    The turn's parent is the head, or ``below``, if ``before`` moves the head there.
    """
    now, parent = message.created_at, below if before else loaded.head_turn_id
    writes: tuple[u.Write, ...] = (
        u.OpenTurn(Turn(id=turn_id, session_id=message.session_id, parent_turn_id=parent, created_at=now)),
        u.InsertMessage(message),
        u.SealMessage(message.id, message.seal),
        u.LinkMessage(turn_id, message.id),
        u.PatchSession(updated_at=now),
        *more,
    )
    return plan_acquire(loaded, now, writes, before=before, runner=runner)


async def settle_session(store: Store, loaded: LoadedSession, now: int, left_open: str = RESTART) -> None:
    """Settle in one unit what has no run. Raise :class:`SessionBusy` if the session has been acquired meanwhile."""
    if plan_settle(loaded, now, left_open):
        # The epoch is raised: a run that was thought dead but is alive must not write to a turn that has ended.
        outcome = await store.commit(plan_acquire(loaded, now, (), left_open=left_open, goes_on=loaded.waiting))
        if isinstance(outcome, u.Refused):
            raise SessionBusy("the session was acquired by another run", session_id=loaded.session_id)
    elif loaded.state.runner is not None and loaded.open is None:
        # Left by an operation without a run: it wrote nothing, so the session is just freed.
        await store.commit(plan_free(loaded.session_id, loaded.state.epoch))
