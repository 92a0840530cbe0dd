"""Taking a session: the one step by which everybody gets to a run.

A prompt, the queue, an interrupt, an answer, ``continue``, a trigger and a schedule all take the session by
:func:`plan_take`: in one unit with whatever the taker writes, what is open is given a truthful end
(:mod:`clew.runtime.settle`) and the epoch is raised. So no request to a model holds a call without a result, and nobody
who had the session before can write to it. :func:`settle_session` takes it for nobody; all else here is a plan.
"""

from __future__ import annotations

from collections.abc import Sequence

from clew.errors import SessionBusy
from clew.runtime.settle import LOST, RESTART, plan_settle
from clew.runtime.standing import Standing
from clew.store import unit as u
from clew.store.base import Store
from clew.transcript.message import MessageRow
from clew.transcript.session import SessionState
from clew.transcript.turn import Turn

__all__ = ["plan_fence", "plan_free", "plan_open", "plan_take", "settle_session"]


def plan_take(
    standing: Standing,
    now: int,
    writes: Sequence[u.Write],
    *,
    before: Sequence[u.Write] = (),
    guards: Sequence[u.Guard] = (),
    goes_on: Turn | None = None,
    left_open: str = LOST,
    runner: str | None = None,
) -> u.Unit:
    """The unit that takes a session: everything settled, the next epoch, and what the taker writes.

    ``goes_on`` is the open turn that the taker goes on with, or ends itself. What has to be there for any of it, such
    as the session, is written ``before``. Refused when the session was taken, or its head moved, since it was read.
    ``runner`` is the replica whose run it is for, where there are several.
    """
    # A turn that waits for a human is nobody's to take but for who goes on with it: then there must be no open one.
    turn = goes_on or (standing.open.turn if standing.open is not None and standing.waiting is None else None)
    held: tuple[u.Guard, ...] = (
        u.EpochIs(standing.state.epoch),
        u.HeadIs(standing.state.head_turn_id),
        u.NoOpenTurn() if turn is None else u.OpenTurnIs(turn.id),
    )
    settled = plan_settle(standing, now, left_open, spared=goes_on)
    # One unit: a kill leaves either the session as it was, or the taker's turn with nothing open before it.
    taken = (*before, u.SetEpoch(standing.next_epoch), *settled, *writes)
    if runner is not None:
        taken += (u.SetRunner(runner),)
        held += (u.NotRunElsewhere(runner), u.LeaseHolds(runner))
    return u.Unit(standing.session_id, taken, (*held, *guards), sync="power")


def plan_fence(session_id: str, state: SessionState, runner: str) -> u.Unit:
    """Take a session as it stands: for what is no run, or from a replica whose lease has lapsed, before anything of it
    is looked at. What that one still writes after this is refused, so nothing comes to what is about to be settled."""
    turn = u.NoOpenTurn() if state.open_turn_id is None else u.OpenTurnIs(state.open_turn_id)
    guards = (u.EpochIs(state.epoch), turn, u.NotRunElsewhere(runner), u.LeaseHolds(runner))
    return u.Unit(session_id, (u.SetEpoch(state.epoch + 1), u.SetRunner(runner)), guards, sync="power")


def plan_free(session_id: str, epoch: int) -> u.Unit:
    """Make a session nobody's that something has which is no run: at its end, or to end it, wherever it is. It can
    write nothing after this."""
    writes = (u.SetEpoch(epoch + 1), u.SetRunner(None))
    return u.Unit(session_id, writes, (u.EpochIs(epoch), u.NoOpenTurn()), sync="power")


def plan_open(
    standing: Standing,
    turn_id: str,
    message: MessageRow,
    *more: u.Write,
    before: Sequence[u.Write] = (),
    below: str | None = None,
    runner: str | None = None,
) -> u.Unit:
    """Take the session for a new turn and store the user message that begins it.

    The turn hangs below the head; where ``before`` moves that, below the turn it is moved to.
    """
    now, parent = message.created_at, below if before else standing.head_turn_id
    writes: tuple[u.Write, ...] = (
        u.OpenTurn(Turn(id=turn_id, session_id=message.session_id, parent_turn_id=parent, created_at=now)),
        u.InsertMessage(message),
        u.SealMessage(message.id, message.seal),
        u.LinkMessage(turn_id, message.id),
        u.PatchSession(updated_at=now),
        *more,
    )
    return plan_take(standing, now, writes, before=before, runner=runner)


async def settle_session(store: Store, standing: Standing, now: int, left_open: str = RESTART) -> None:
    """End what no run is going to end, as one unit. Nobody may run on the session: :class:`SessionBusy` if one does."""
    if plan_settle(standing, now, left_open):
        # Taken for nobody: a run that was thought dead and is not must not write into a turn that has ended.
        outcome = await store.commit(plan_take(standing, now, (), left_open=left_open, goes_on=standing.waiting))
        if isinstance(outcome, u.Refused):
            raise SessionBusy("the session was taken by another run", session_id=standing.session_id)
    elif standing.state.runner is not None and standing.open is None:
        # Left by what is no run: it wrote nothing, and the session is free.
        await store.commit(plan_free(standing.session_id, standing.state.epoch))
