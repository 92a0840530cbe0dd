"""Continuing: what "go on" means for a session, by how its newest turn stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from clew.errors import NothingToContinue
from clew.runtime.context import session_policy
from clew.runtime.heading import load_compactions, load_tails, parent_before, plan_move
from clew.runtime.host import Host
from clew.store.base import get_session
from clew.store.unit import (
    EpochIs,
    InsertMessage,
    LinkMessage,
    NoOpenTurn,
    SealMessage,
    SetEpoch,
    SetTurn,
    Unit,
    Write,
)
from clew.transcript.line import line_turns
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.seal import seal_of
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import Turn

if TYPE_CHECKING:
    from clew.runtime.desk import Desk, Submission

__all__ = ["GO_ON", "Continuing"]

GO_ON: Final = "Your answer was cut off. Go on exactly where it stopped, and repeat nothing."


class Continuing:
    """Goes on with sessions of one engine."""

    def __init__(self, host: Host, desk: Desk) -> None:
        self._host = host
        self._desk = desk

    async def go_on(self, session_id: str) -> Submission:
        """Run an unanswered turn, go on after the step limit, try again after a failure, or start the queue."""
        async with self._desk.lock(session_id):
            return await self.go_on_held(session_id)

    async def go_on_held(self, session_id: str) -> Submission:
        """The same, for whoever holds the session's lock already."""
        busy = await self._desk.busy(session_id)
        if busy is not None:
            raise busy
        self._desk.let_queue_move(session_id)
        session = await get_session(self._host.store, session_id)
        found = await self._newest(session_id)
        if found is None:
            return await self._start_queue(session_id)
        turn, rows, has_children, followed = found
        user = next((row for row in rows if row.role == "user"), None)
        if user is None:
            return await self._start_queue(session_id)
        state = await self._host.store.load_state(session_id)
        short = turn.status == "completed" and turn.stopped in ("step_limit", "doom_loop", "length")
        if (turn.status == "unanswered" or short) and not has_children:
            return await self._reopen(session, turn, user, state)
        if turn.status in ("unanswered", "failed", "aborted") and not (followed and self._stays_full(session)):
            return await self._try_again(session, turn, user, state)
        # What follows a turn was said to it as it is. It goes on with a prompt.
        return await self._start_queue(session_id)

    def _stays_full(self, session: Session) -> bool:
        """To try again goes back before a compaction made by hand; where none fires by itself that helps nobody."""
        return not session_policy(self._host.config, session).enabled

    async def _newest(self, session_id: str) -> tuple[Turn, Sequence[MessageRow], bool, bool] | None:
        """The newest turn of the line that is not a compaction, what it holds, and whether anything follows it:

        anywhere in the tree, and on the line, where that can only be compactions.
        """
        tree = await self._host.store.load_tree(session_id)
        path = [turn for turn in line_turns(tree) if turn.kind == "normal"]
        if not path:
            return None
        turn = path[-1]
        line = await self._host.store.load_line(session_id, through=turn.id, turns=1, keep_damaged=True)
        children = any(other.parent_turn_id == turn.id for other in tree.turns.values() if other.status != "refused")
        return turn, line.turns[-1].messages, children, line_turns(tree)[-1].id != turn.id

    async def _start_queue(self, session_id: str) -> Submission:
        queue = await self._host.store.load_queue(session_id)
        if not queue:
            raise NothingToContinue("there is nothing to go on with; send a prompt", session_id=session_id)
        await self._desk.queue.fire(session_id)
        return self._desk.submission(queue[0].message.id, queued=False)

    async def _reopen(self, session: Session, turn: Turn, user: MessageRow, state: SessionState) -> Submission:
        setting = await self._desk.setting_of(session.id, turn)
        steps = len(await self._host.store.load_steps(turn.id))
        data = {"budget_from": steps, "stopped": None, "max_steps": None, "warned": None}
        writes: tuple[Write, ...] = (SetEpoch(state.epoch + 1), SetTurn(turn.id, "running", data=data))
        if turn.stopped == "length":
            # The history must not end in the model's own words: not every wire takes that.
            now = self._host.clock.now_ms()
            part = PartRow(self._host.mint.part(), 0, {"type": "text", "text": GO_ON}, now, now)
            row = MessageRow(self._host.mint.message(), session.id, "user", now, now, {"synthetic": True}, (part,))
            writes += (InsertMessage(row), SealMessage(row.id, seal_of([part.data])), LinkMessage(turn.id, row.id))
        await self._desk.commit(Unit(session.id, writes, (EpochIs(state.epoch), NoOpenTurn()), sync="power"))
        reopened = msgspec.structs.replace(turn, data={**turn.data, **data})
        self._desk.start(setting, turn.id, state.epoch + 1, user.id, reopened)
        return self._desk.submission(user.id, queued=False, turn_id=turn.id)

    async def _try_again(self, session: Session, turn: Turn, user: MessageRow, state: SessionState) -> Submission:
        """A sibling turn that starts with the same user message."""
        host = self._host
        setting = await self._desk.setting_of(session.id, turn)
        now = host.clock.now_ms()
        tree = await host.store.load_tree(session.id)
        tails = await load_tails(host.store, session.id, tree)
        parent = parent_before(tree, await load_compactions(host.store, session.id, tree), turn)
        sibling = Turn(id=host.mint.turn(), session_id=session.id, parent_turn_id=parent, created_at=now)
        writes: tuple[Write, ...] = (
            SetEpoch(state.epoch + 1),
            *plan_move(tree, tails, session.id, parent, now, "rewind", new=sibling, holding=(user.id,)),
        )
        await self._desk.commit(Unit(session.id, writes, (EpochIs(state.epoch), NoOpenTurn()), sync="power"))
        self._desk.start(setting, sibling.id, state.epoch + 1, user.id)
        return self._desk.submission(user.id, queued=False, turn_id=sibling.id)
