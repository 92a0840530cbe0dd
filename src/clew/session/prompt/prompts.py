"""Prompts: accepted once, then run, queued or refused, depending on the session's state and the caller's options."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, ParamSpec

import msgspec

from clew.errors import DuplicateMessage, InvalidInput, SessionBusy
from clew.session.acquire.acquire import INTERRUPTED
from clew.session.acquire.live_sessions import DuplicateSubmission, LiveSessions
from clew.session.acquire.prepare import find_obstacle, load_prompt_start
from clew.session.host import Host
from clew.session.prompt.admission import PromptContent, admit, content_digest, user_row
from clew.session.prompt.event_replies import EventReplies
from clew.session.prompt.queue import Queue
from clew.session.prompt.submission import OnBusy, Outcomes, Submission, stored_outcome
from clew.session.turn.runner import Runner
from clew.store.unit import SentCountIs, Unit
from clew.transcript.message import MessageRow
from clew.transcript.metadata import merge
from clew.transcript.session import Model
from clew.transcript.turn_state import OPEN

__all__ = ["Prompts", "UnitFor"]

UnitFor = Callable[[MessageRow], Unit]
"""Returns writes and guards that are added to the unit that stores a prompt's message."""


P = ParamSpec("P")


def _retry_if_sent_elsewhere(
    take: Callable[P, Coroutine[Any, Any, Submission]],
) -> Callable[P, Coroutine[Any, Any, Submission]]:
    """Retry a submission when another process accepted the same prompt concurrently: the lookup finds it now."""

    @functools.wraps(take)
    async def acquired(*args: P.args, **options: P.kwargs) -> Submission:
        while True:
            try:
                return await take(*args, **options)
            except DuplicateSubmission:
                continue

    return acquired


class Prompts:
    """The service that accepts prompts for all sessions of one engine."""

    def __init__(
        self,
        host: Host,
        sessions: LiveSessions,
        queue: Queue,
        runner: Runner,
        outcomes: Outcomes,
        event_replies: EventReplies,
    ) -> None:
        self._host = host
        self._sessions = sessions
        self._queue = queue
        self._runner = runner
        self._outcomes = outcomes
        self._event_replies = event_replies

    @_retry_if_sent_elsewhere
    async def submit(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        on_busy: OnBusy = "queue",
        attended: bool = True,
        output: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
        also: UnitFor | None = None,
    ) -> Submission:
        """Accept a prompt: run it or, if the session is busy, queue, refuse or interrupt as ``on_busy`` says."""
        if on_busy not in ("queue", "reject", "interrupt"):
            raise InvalidInput(f"on_busy must be queue, reject or interrupt, not {on_busy!r}")
        async with self._sessions.lock(session_id):
            self._sessions.check_open(session_id)
            start = await load_prompt_start(self._host, self._sessions, session_id, message_id)
            session = start.session
            config, content = await admit(
                self._host,
                session,
                prompt,
                model=model,
                agent=agent,
                attended=attended,
                last_environment=start.last_environment,
                output=output,
            )
            known = await self._find_known(session_id, start.sent, content)
            if known is not None:
                return known
            given = metadata if attended else {**(metadata or {}), "unattended": True}
            given = given if output is None else {**(given or {}), "output": dict(output)}
            row = await user_row(self._host, session, config, content, message_id, given, start.newest_at)
            obstacle = find_obstacle(self._sessions, session_id, start.loaded)
            if obstacle is not None and on_busy == "reject":
                raise obstacle
            extra = (also or self._event_replies.plan_prompt)(row)
            if message_id is not None and self._host.store.capabilities.many_processes:
                # A client without an answer retries at another replica, while this one may still be about to write.
                unsent = SentCountIs(message_id, len(start.sent))
                extra = msgspec.structs.replace(extra, guards=(*extra.guards, unsent))
            if obstacle is None:
                try:
                    return await self._runner.open(
                        session, config, row, content, also=extra, loaded=start.loaded, counted=start.counted
                    )
                except SessionBusy:
                    # Another replica was faster: the session counts as busy, as if that had been known before.
                    if not self._host.lease.shared or on_busy == "reject":
                        raise
            if model is None:
                # The model is chosen when the turn starts: queued messages before this one may change it.
                row = msgspec.structs.replace(row, metadata=merge(row.metadata, {}, ("model",)))
            # The interrupting prompt is stored before the run is stopped: a crash in between loses nothing.
            submission = await self._queue.add(session, row, content, interrupt=on_busy == "interrupt", also=extra)
            if self._host.lease.shared:
                # A run elsewhere checks the queue when it ends; if it ended before this was stored, start it here.
                await self._runner.fire_idle(session_id)
            if on_busy == "interrupt":
                await self._runner.interrupt_run(session_id, INTERRUPTED, to=row.id)
        return submission

    async def send_queued(self, session_id: str, message_id: str) -> Submission:
        """Send a queued message now: the active run or pending request is interrupted, as for an interrupting prompt.

        The message is first in the queue before anything is stopped.
        """
        async with self._sessions.lock(session_id):
            self._sessions.check_open(session_id)
            start = await load_prompt_start(self._host, self._sessions, session_id)
            queued = (await self._queue.put_ahead(start.session, message_id)).message
            if find_obstacle(self._sessions, session_id, start.loaded) is None:
                alone = len(await self._host.store.load_queue(session_id)) == 1
                with contextlib.suppress(SessionBusy):  # another replica was faster
                    acquired, _ = await self._queue.take(session_id, queued, resume=alone)
                    if acquired is not None:
                        return self._runner.start(acquired)
            # Before a run can start and end, or no one would resolve the outcome.
            submission = Submission(queued.id, self._outcomes.expect(session_id, queued.id), queued=True)
            if self._host.lease.shared:
                await self._runner.fire_idle(session_id)
            await self._runner.interrupt_run(session_id, INTERRUPTED, to=queued.id)
        return submission

    async def _find_known(
        self, session_id: str, rows: Sequence[MessageRow], content: PromptContent
    ) -> Submission | None:
        """Return the earlier submission of a prompt that a client sends again; ``rows`` have its id."""
        sent = [row for row in rows if not row.is_cancelled]
        if not sent:
            return None
        tree = await self._host.store.load_tree(session_id)
        # Refused messages were handed back to the client: sending one again is no repetition.
        refused = {id_ for turn in tree.turns.values() if turn.status == "refused" for id_ in tree.links[turn.id]}
        sent = [row for row in sent if row.id not in refused]
        # An edited message may use the same id: the newest one counts first.
        for row in reversed(sent):
            if content_digest([part.data for part in row.parts]) != content_digest(content.parts):
                continue
            outcome, queued = self._outcomes.expect(session_id, row.id), row.queued_at is not None
            run = self._sessions.find_run(session_id)
            if run is not None and run.user_message_id == row.id:
                return Submission(row.id, outcome, stream=run.live_stream)
            if not queued:
                turns = [turn for turn in tree.turns.values() if row.id in tree.links.get(turn.id, ())]
                if turns and turns[-1].status not in OPEN:
                    # Its turn has ended, so its outcome is already known.
                    turn = turns[-1]
                    last = tree.links[turn.id][-1]
                    self._outcomes.resolve(row.id, stored_outcome(turn, last))
            return Submission(row.id, outcome, queued=queued)
        if sent:
            client_id, last = sent[-1].client_message_id, sent[-1].id
            raise DuplicateMessage(f"message {client_id!r} was already sent with other content", message_id=last)
        return None
