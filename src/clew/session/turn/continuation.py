"""Continuation: what "continue" does for a session, depending on the state of its newest turn.

A turn is resumed after its last complete step, in a new message: what its tools did is sent with their results, and
nothing is done twice. The text of a step that was cut off stays visible but is not sent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from clew.compaction.policy import session_policy
from clew.errors import ClewError, InvalidInput, NothingToContinue
from clew.session.acquire.acquire import plan_acquire
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.acquire.loaded_session import LoadedSession, load_session_state
from clew.session.acquire.prepare import prepare_session, settle_startable
from clew.session.affected_tree import AffectedTree, load_affected_above, load_newest_turn
from clew.session.head_move import load_move, plan_restart
from clew.session.host import Host
from clew.session.prompt.admission import synthetic_row
from clew.session.prompt.event_replies import EventReplies
from clew.session.prompt.queue import Queue, plan_resume
from clew.session.prompt.submission import Submission
from clew.session.prompt.turn_config import resolve_for
from clew.session.turn.run import MAX_RESUMED, AcquiredSession
from clew.session.turn.runner import Runner
from clew.store.base import get_session
from clew.store.unit import InsertMessage, LinkMessage, SealMessage, SetTurn, Write
from clew.transcript.head import Added
from clew.transcript.incomplete_step import ends_with_text, find_cuts, is_whole_answer, unsent_data
from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.transcript.turn import Turn

__all__ = ["GO_ON", "Continuation", "Mode"]

log = logging.getLogger("clew.run")
Mode = Literal["on", "again"]
"""``on`` resumes the newest turn where it stopped; ``again`` has its prompt answered again in a sibling turn."""

GO_ON: Final = "Your answer was cut off. Go on exactly where it stopped, and repeat nothing."


class Continuation:
    """The service that resumes sessions of one engine."""

    def __init__(
        self, host: Host, sessions: LiveSessions, queue: Queue, runner: Runner, event_replies: EventReplies
    ) -> None:
        self._host = host
        self._sessions = sessions
        self._queue = queue
        self._runner = runner
        self._event_replies = event_replies

    async def go_on(self, session_id: str, mode: Mode = "on", *, queue: bool = False) -> Submission:
        """Resume the newest turn or start the queue; with ``again``, answer its prompt again in a sibling turn.

        With ``queue``, only start the queue.
        """
        if mode not in ("on", "again"):
            raise InvalidInput(f"mode must be on or again, not {mode!r}")
        async with self._sessions.lock(session_id):
            self._sessions.check_open(session_id)
            return await self.go_on_locked(session_id, mode, queue=queue)

    async def go_on_locked(self, session_id: str, mode: Mode = "on", *, queue: bool = False) -> Submission:
        """Resume like :meth:`go_on`, for a caller that already holds the session's lock."""
        # Settled first: a turn left open has failed, and how to resume depends on the newest turn.
        await settle_startable(self._host, self._sessions, session_id)
        if queue:
            return await self._start_queue(session_id, "on")
        store = self._host.store
        session = await get_session(store, session_id)
        newest, last = await load_newest_turn(store, session_id)
        turn = newest.turn if newest is not None else None
        rows = await self._load_rows(turn) if turn is not None else ()
        user = next((row for row in rows if row.role == "user"), None)
        if turn is None or last is None or user is None:
            return await self._start_queue(session_id, mode)
        loaded = await load_session_state(store, session_id)
        # A restart goes back before a compaction that covers this turn; without automatic compaction that is no help.
        affected = await load_affected_above(store, turn, self._host.clock.now_ms())
        restarted = plan_restart(affected, turn, self._host.mint.turn())
        is_summarised = last.turn.id != turn.id and all(one.messages != last.messages for one in restarted[1])
        stays_full = is_summarised and not session_policy(self._host.config, session).enabled
        if mode == "again" and not stays_full:
            return await self._answer_again(session, affected, user, loaded, *restarted)
        if mode == "on" and await self._is_last(turn) and await self._is_incomplete(turn, rows):
            return await self._resume_turn(session, turn, rows, loaded)
        if mode == "on" and turn.status == "unanswered" and not stays_full:
            return await self._answer_again(session, affected, user, loaded, *restarted)
        # Later turns build on this one as it is, so the session resumes with a queued prompt.
        return await self._start_queue(session_id, mode)

    async def answer(self, session: Session, turn: Turn, user: MessageRow) -> Submission:
        """Run a turn that was just created and has no answer yet. The caller holds the session's lock."""
        return await self._resume_turn(
            session, turn, (user,), await prepare_session(self._host, session.id), speaks=True
        )

    async def resume(self, session_id: str) -> None:
        """Resume a turn that a restart interrupted with nothing in flight; only a limited number of times."""
        store = self._host.store
        async with self._sessions.lock(session_id):
            try:
                session, (_, last) = await get_session(store, session_id), await load_newest_turn(store, session_id)
                if last is None:
                    return
                turn = last.turn
                # A subagent works for a call that has ended.
                interrupted = turn.status == "failed" and turn.error.get("code") == "interrupted"
                mine = interrupted and await self._is_last(turn) and session.kind != "subagent"
                if mine and turn.resumed < MAX_RESUMED:
                    loaded = await load_session_state(store, session_id)
                    await self._resume_turn(session, turn, await self._load_rows(turn), loaded, automatic=True)
            except ClewError as error:
                log.warning("could not resume the interrupted turn of session %s: %s", session_id, error)

    async def _load_rows(self, turn: Turn) -> tuple[MessageRow, ...]:
        line = await self._host.store.load_line(turn.session_id, through=turn.id, turns=1, keep_damaged=True)
        return line.turns[-1].messages

    async def _is_last(self, turn: Turn) -> bool:
        """Return whether a turn has no children: they build on it as it is. Refused ones do not count."""
        store, session_id = self._host.store, turn.session_id
        move = await store.newest_move(session_id)
        # A head that moved here when the turn settled has no children yet; only one moved back may have some.
        if move is not None and move.why == "turn" and move.to_turn_id == turn.id:
            return True
        return not await store.has_child(session_id, turn.id)

    async def _is_incomplete(self, turn: Turn, rows: Sequence[MessageRow]) -> bool:
        """Return whether a turn is incomplete: it has no answer, or its answer did not reach its end."""
        if turn.status in ("failed", "aborted"):
            return not is_whole_answer(rows, await self._host.store.load_steps(turn.id))
        return turn.status == "unanswered" or turn.stopped in ("step_limit", "doom_loop", "length", "other")

    async def _start_queue(self, session_id: str, mode: Mode) -> Submission:
        """Start the queue where no turn can be resumed, unless an answer to the same prompt is requested."""
        acquired = await self._queue.take_next(session_id, resume=True) if mode == "on" else None
        if acquired is None:
            raise NothingToContinue("nothing to continue; send a prompt", session_id=session_id)
        return self._runner.start(acquired)

    async def _resume_turn(
        self,
        session: Session,
        turn: Turn,
        rows: Sequence[MessageRow],
        loaded: LoadedSession,
        *,
        automatic: bool = False,
        speaks: bool = False,
    ) -> Submission:
        """Resume the turn after its last complete step. ``by_itself``: without a request, so its limits still apply;
        ``speaks``: its prompt was just sent.
        """
        host, now = self._host, self._host.clock.now_ms()
        user = next(row for row in rows if row.role == "user")
        newest_at = await host.store.newest_message_at(session.id)
        config = await resolve_for(host, session, user)
        steps = await host.store.load_steps(turn.id)
        # A copy has no calls to find cut steps by; it stores what was cut when it was made.
        cuts = {**turn.unsent, **find_cuts(rows, steps, await host.store.load_calls(session.id))}
        data: dict[str, Any] = {"stopped": None, "error": None, "resumed": turn.resumed + 1}
        if not automatic:
            data |= {"budget_from": len(steps), "max_steps": None, "warned": None, "resumed": None}
        if cuts:
            data["unsent"] = unsent_data(cuts)
        # Only a request of a client ends a pause.
        resumed = () if automatic else plan_resume(session, speaks=speaks)
        attempt_writes = await self._event_replies.plan_attempt(turn, user.id, "continued")
        writes: tuple[Write, ...] = (SetTurn(turn.id, "running", data=data), *resumed, *attempt_writes)
        if ends_with_text(rows, cuts):
            # The history must not end with the model's own text: not every provider accepts that.
            row = synthetic_row(host, session.id, GO_ON, newest_at)
            newest_at = row.created_at
            writes += (InsertMessage(row), SealMessage(row.id, row.seal), LinkMessage(turn.id, row.id))
        await self._sessions.commit(plan_acquire(loaded, now, writes, runner=host.lease.replica_id))
        reopened = msgspec.structs.replace(turn, data={**turn.data, **data})
        acquired = AcquiredSession(config, reopened, loaded.next_epoch, user.id, steps=len(steps), newest_at=newest_at)
        return self._runner.start(acquired)

    async def _answer_again(
        self,
        session: Session,
        affected: AffectedTree,
        user: MessageRow,
        loaded: LoadedSession,
        parent: str | None,
        copied: tuple[Added, ...],
    ) -> Submission:
        """Start a sibling turn with the same user message, below ``parent``."""
        host, now = self._host, self._host.clock.now_ms()
        config = await resolve_for(host, session, user)
        sibling = Turn(id=host.mint.turn(), session_id=session.id, parent_turn_id=parent, created_at=now)
        new = (*copied, Added(sibling, (user.id,)))
        _, writes = await load_move(host.store, affected, parent, now, "rewind", new=new)
        attempt_writes = await self._event_replies.plan_attempt(sibling, user.id, "again")
        writes = (*writes, *plan_resume(session, speaks=False), *attempt_writes)
        await self._sessions.commit(plan_acquire(loaded, now, writes, runner=host.lease.replica_id))
        newest_at = await host.store.newest_message_at(session.id)
        return self._runner.start(AcquiredSession(config, sibling, loaded.next_epoch, user.id, newest_at=newest_at))
