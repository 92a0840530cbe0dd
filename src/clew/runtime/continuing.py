"""Continuing: what "go on" means for a session, by how its newest turn stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from clew.errors import NothingToContinue
from clew.runtime.host import Host
from clew.runtime.setting import keeping_prompt
from clew.store.base import get_session
from clew.store.unit import (
    EpochIs,
    LinkMessage,
    MoveHead,
    NoOpenTurn,
    OpenTurn,
    SetEpoch,
    SetHidden,
    SetTurn,
    Unit,
    Write,
)
from clew.transcript.message import MessageRow
from clew.transcript.project import project, projection_of, tails_of
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import HeadMove, Tree, Turn, placed

if TYPE_CHECKING:
    from clew.runtime.desk import Desk, Submission

__all__ = ["Continuing"]


class Continuing:
    """Goes on with sessions of one engine."""

    def __init__(self, host: Host, desk: Desk) -> None:
        self._host = host
        self._desk = desk

    async def go_on(self, session_id: str) -> Submission:
        """Run an unanswered turn, go on after the step limit, try again after a failure, or start the queue."""
        async with self._desk.lock(session_id):
            busy = await self._desk.busy(session_id)
            if busy is not None:
                raise busy
            session = await get_session(self._host.store, session_id)
            line = await self._host.store.load_line(session_id, turns=1)
            if not line.turns:
                return await self._start_queue(session_id)
            turn = line.turns[-1].turn
            user = next((row for row in line.turns[-1].messages if row.role == "user"), None)
            state = await self._host.store.load_state(session_id)
            if turn.status == "unanswered" or (turn.status == "completed" and turn.data.get("stopped") == "step_limit"):
                return await self._reopen(session, turn, user, state)
            if turn.status in ("failed", "aborted") and user is not None:
                return await self._try_again(session, turn, user, state)
            return await self._start_queue(session_id)

    async def _start_queue(self, session_id: str) -> Submission:
        queue = await self._host.store.load_queue(session_id)
        if not queue:
            raise NothingToContinue("there is nothing to go on with; send a prompt", session_id=session_id)
        await self._desk.queue.fire(session_id)
        return self._desk.submission(queue[0].message.id, queued=False)

    async def _reopen(self, session: Session, turn: Turn, user: MessageRow | None, state: SessionState) -> Submission:
        if user is None:
            raise NothingToContinue("this turn has no user message to answer", turn_id=turn.id)
        setting = await self._desk.setting_of(session.id, turn)
        steps = len(await self._host.store.load_steps(turn.id))
        data = {"budget_from": steps, "stopped": None}
        kept = keeping_prompt(setting, self._host.clock.now_ms())
        writes = (SetEpoch(state.epoch + 1), SetTurn(turn.id, "running", data=data), kept)
        await self._desk.commit(Unit(session.id, writes, (EpochIs(state.epoch), NoOpenTurn()), sync="power"))
        reopened = msgspec.structs.replace(turn, data={**turn.data, **data})
        self._desk.start(setting, turn.id, state.epoch + 1, user.id, reopened)
        return self._desk.submission(user.id, queued=False, turn_id=turn.id)

    async def _try_again(self, session: Session, turn: Turn, user: MessageRow, state: SessionState) -> Submission:
        """A sibling turn that starts with the same user message."""
        host = self._host
        setting = await self._desk.setting_of(session.id, turn)
        now = host.clock.now_ms()
        sibling = Turn(id=host.mint.turn(), session_id=session.id, parent_turn_id=turn.parent_turn_id, created_at=now)
        writes: tuple[Write, ...] = (
            SetEpoch(state.epoch + 1),
            MoveHead(turn.parent_turn_id, now, "rewind"),
            OpenTurn(sibling),
            LinkMessage(sibling.id, user.id),
            keeping_prompt(setting, now),
            *await self._projected(session.id, turn.parent_turn_id, sibling, user.id, now),
        )
        await self._desk.commit(Unit(session.id, writes, (EpochIs(state.epoch), NoOpenTurn()), sync="power"))
        self._desk.start(setting, sibling.id, state.epoch + 1, user.id)
        return self._desk.submission(user.id, queued=False, turn_id=sibling.id)

    async def _projected(
        self, session_id: str, head: str | None, open_turn: Turn, user_id: str, now: int
    ) -> Sequence[Write]:
        """The projections as they will be once the head is at ``head`` and ``open_turn`` is open."""
        tree = await self._host.store.load_tree(session_id)
        rows = {row.id: row for row in await self._host.store.load_messages(session_id)}
        turn = placed(open_turn, tree.turns.get(head) if head else None)
        move = HeadMove(len(tree.moves) + 1, session_id, tree.head_turn_id, head, now, "rewind")
        after = Tree(
            head, turn.id, {**tree.turns, turn.id: turn}, {**tree.links, turn.id: (user_id,)}, (*tree.moves, move)
        )
        truth = project(after, tails_of(after, rows))
        changes = {}
        for row in rows.values():
            hidden = truth.get(row.id)
            if projection_of(row.metadata) != ((hidden.at, hidden.by) if hidden else (None, None)):
                changes[row.id] = hidden
        return (SetHidden(changes),) if changes else ()
