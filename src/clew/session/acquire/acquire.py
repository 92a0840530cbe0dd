"""Acquiring a session: the single step that precedes every run.

Prompts, the queue, interrupts, answers, ``continue``, triggers and schedules all acquire the session with
:func:`plan_acquire`: in one unit with the caller's own writes, everything open is settled
(:mod:`clew.session.acquire.settle`) and the epoch is raised. So no model request contains a call without a result,
and a previous run can no longer write. :func:`settle_session` acquires it without a run; everything else here only
plans.
"""

from __future__ import annotations

from collections.abc import Sequence

from clew.errors import SessionBusy
from clew.session.acquire.loaded_session import LoadedSession
from clew.session.acquire.settle import LOST, RESTART, plan_settle
from clew.store import unit as u
from clew.store.base import Store
from clew.transcript.message import MessageRow
from clew.transcript.session import SessionState
from clew.transcript.turn import Turn

__all__ = ["plan_acquire", "plan_fence", "plan_free", "plan_open", "settle_session"]


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
