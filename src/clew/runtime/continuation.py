"""Continuation: what "go on" means for a session, by how its newest turn stands."""

from __future__ import annotations

from typing import Final

import msgspec

from clew.errors import NothingToContinue
from clew.runtime.context import session_policy
from clew.runtime.head_move import load_compactions, load_kept_tails, plan_move
from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions
from clew.runtime.queue import Queue
from clew.runtime.ready import make_ready, settle_startable
from clew.runtime.run import TakenSession
from clew.runtime.runner import Runner
from clew.runtime.setting import resolve_for
from clew.runtime.standing import Standing, load_standing
from clew.runtime.submission import Submission
from clew.runtime.take import plan_take
from clew.store.base import get_session
from clew.store.unit import InsertMessage, LinkMessage, SealMessage, SetTurn, Write
from clew.transcript.head import parent_before
from clew.transcript.line import line_turns
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.part import text_part
from clew.transcript.session import Session
from clew.transcript.turn import Tree, Turn

__all__ = ["GO_ON", "Continuation"]

GO_ON: Final = "Your answer was cut off. Go on exactly where it stopped, and repeat nothing."


class Continuation:
    """Goes on with sessions of one engine."""

    def __init__(self, host: Host, sessions: LiveSessions, queue: Queue, runner: Runner) -> None:
        self._host = host
        self._sessions = sessions
        self._queue = queue
        self._runner = runner

    async def go_on(self, session_id: str) -> Submission:
        """Run an unanswered turn, go on after the step limit, try again after a failure, or start the queue."""
        async with self._sessions.lock(session_id):
            self._sessions.check_open(session_id)
            return await self.go_on_locked(session_id)

    async def go_on_locked(self, session_id: str) -> Submission:
        """The same, for whoever holds the session's lock already."""
        # What the newest turn is must be known before it is decided how to go on: one left open has failed.
        await settle_startable(self._host, self._sessions, session_id)
        self._queue.unpause(session_id)
        store = self._host.store
        session = await get_session(store, session_id)
        tree = await store.load_tree(session_id)
        line = line_turns(tree)
        turn = next((turn for turn in reversed(line) if turn.kind == "normal"), None)
        rows = (
            (await store.load_line(session_id, through=turn.id, turns=1, keep_damaged=True)).turns[-1].messages
            if turn is not None
            else ()
        )
        user = next((row for row in rows if row.role == "user"), None)
        if turn is None or user is None:
            return await self._start_queue(session_id)
        standing = await load_standing(store, session_id)
        children = any(other.parent_turn_id == turn.id for other in tree.turns.values() if other.status != "refused")
        short = turn.status == "completed" and turn.stopped in ("step_limit", "doom_loop", "length")
        if (turn.status == "unanswered" or short) and not children:
            return await self._reopen(session, turn, user, standing)
        # To try again goes back before a compaction made by hand; where none fires by itself that helps nobody.
        compacted = line[-1].id != turn.id
        stays_full = compacted and not session_policy(self._host.config, session).enabled
        if turn.status in ("unanswered", "failed", "aborted") and not stays_full:
            return await self._try_again(session, tree, turn, user, standing)
        # What follows a turn was said to it as it is. It goes on with a prompt.
        return await self._start_queue(session_id)

    async def answer(self, session: Session, turn: Turn, user: MessageRow) -> Submission:
        """Run a turn that was just made and that nobody has answered. Called under the session's lock."""
        self._queue.unpause(session.id)
        return await self._reopen(session, turn, user, await make_ready(self._host, session.id))

    async def _start_queue(self, session_id: str) -> Submission:
        taken = await self._queue.take_next(session_id)
        if taken is None:
            raise NothingToContinue("there is nothing to go on with; send a prompt", session_id=session_id)
        return self._runner.start(taken)

    async def _reopen(self, session: Session, turn: Turn, user: MessageRow, standing: Standing) -> Submission:
        host = self._host
        setting = await resolve_for(host, session, user)
        steps, now = len(await host.store.load_steps(turn.id)), host.clock.now_ms()
        data = {"budget_from": steps, "stopped": None, "max_steps": None, "warned": None}
        writes: tuple[Write, ...] = (SetTurn(turn.id, "running", data=data),)
        if turn.stopped == "length":
            # The history must not end in the model's own words: not every wire takes that.
            part = PartRow(host.mint.part(), 0, text_part(GO_ON), now, now)
            row = MessageRow(host.mint.message(), session.id, "user", now, now, {"synthetic": True}, (part,))
            writes += (InsertMessage(row), SealMessage(row.id, row.seal), LinkMessage(turn.id, row.id))
        await self._sessions.commit(plan_take(standing, now, writes))
        reopened = msgspec.structs.replace(turn, data={**turn.data, **data})
        return self._runner.start(TakenSession(setting, reopened, standing.next_epoch, user.id))

    async def _try_again(
        self, session: Session, tree: Tree, turn: Turn, user: MessageRow, standing: Standing
    ) -> Submission:
        """A sibling turn that starts with the same user message."""
        host, now = self._host, self._host.clock.now_ms()
        setting = await resolve_for(host, session, user)
        tails = await load_kept_tails(host.store, session.id, tree)
        parent = parent_before(tree, await load_compactions(host.store, session.id, tree), turn)
        sibling = Turn(id=host.mint.turn(), session_id=session.id, parent_turn_id=parent, created_at=now)
        writes = plan_move(tree, tails, session.id, parent, now, "rewind", new=sibling, holding=(user.id,))
        await self._sessions.commit(plan_take(standing, now, writes))
        return self._runner.start(TakenSession(setting, sibling, standing.next_epoch, user.id))
