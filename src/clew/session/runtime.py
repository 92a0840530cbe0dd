"""The runtime of an engine: the services that act on its sessions, created together."""

from __future__ import annotations

from typing import Final

from clew.live.base import Signal
from clew.session.acquire.acquire import SHUTDOWN
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.acquire.prepare import settle_startable
from clew.session.cluster.heartbeat import Heartbeat
from clew.session.cluster.remote_stream import LiveStreams
from clew.session.context.compact import Compacted, prune_idle
from clew.session.host import Host
from clew.session.prompt.event_replies import EventReplies
from clew.session.prompt.prompts import Prompts
from clew.session.prompt.queue import Queue
from clew.session.prompt.submission import Outcomes
from clew.session.snapshots import Snapshots
from clew.session.turn.answers import Answers
from clew.session.turn.continuation import Continuation
from clew.session.turn.rules_service import RulesService
from clew.session.turn.runner import Runner
from clew.store.unit import STORE_WIDE, AppendChunks, BeginDeletion, DeletePortion, FinishStep, MarkFolded, Unit

__all__ = ["Runtime"]

_COLLECT_AFTER_MS: Final = 60_000
"""Time between a deletion and the collection of its saved workspaces, so that many deletions have one."""


class Runtime:
    """The services of the runtime. Each one knows only those created before it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._outcomes = Outcomes()
        host.store.watch(self._observe_saved)
        self.sessions = LiveSessions(host)
        self.streams = LiveStreams(host.store, host.live)
        self.event_replies = EventReplies(host)
        self.snapshots = Snapshots(host)
        self.queue = Queue(host, self.sessions, self._outcomes, self.event_replies, self.snapshots)
        self.runner = Runner(host, self.sessions, self.queue, self._outcomes, self.event_replies, self.snapshots)
        self.prompts = Prompts(host, self.sessions, self.queue, self.runner, self._outcomes, self.event_replies)
        self.answers = Answers(host, self.sessions, self.runner)
        self.rules_service = RulesService(host, self.sessions, self.answers)
        self.continuation = Continuation(host, self.sessions, self.queue, self.runner, self.event_replies)
        self.heartbeat = Heartbeat(
            host, self.sessions, self.runner, self.continuation, self.event_replies, self._outcomes
        )

    def _observe_saved(self, unit: Unit) -> None:
        """Call the ``session_save`` hook after each durable change of a session, except for appended message text."""
        kinds = {type(write) for write in unit.writes}
        grows = unit.sync == "process" and bool(kinds & {AppendChunks, MarkFolded}) and FinishStep not in kinds
        is_deleted = bool(kinds & {BeginDeletion, DeletePortion})
        if unit.session_id != STORE_WIDE and not grows and not is_deleted:
            self._host.hooks.observe("session_save", unit.session_id, unit.session_id)

    async def prune(self, session_id: str) -> Compacted:
        """Replace old tool outputs of an idle session with stubs for the model."""
        async with self.sessions.lock(session_id):
            session = await self.sessions.get_open(session_id)
            await settle_startable(self._host, self.sessions, session_id)
            done = await prune_idle(self._host, session)
            if done.compacted:
                self.sessions.show_changed(session_id)
            return done

    async def begin_deletion(self, session_id: str) -> None:
        """Abort the active operation of a session that is about to be deleted."""
        await self.sessions.begin_deletion(session_id, "the session is deleted")

    def end_deletion(self, session_id: str, *, is_deleted: bool) -> None:
        """End a deletion, whether it succeeded or not."""
        self.sessions.end_deletion(session_id)
        if is_deleted:
            self._outcomes.cancel_session(session_id)
            self._host.live.forget(session_id)
            # The store refuses writes of a run in another replica; the signal stops its tools, too.
            self._host.live.signal(Signal(session_id, "stop"))
            self.runner.tool_storage.drop(session_id)
            self.snapshots.collect_later(_COLLECT_AFTER_MS)
            if self._host.servers is not None:
                self._host.servers.forget(session_id)

    async def close(self, within_s: float) -> tuple[str, ...]:
        """Stop every run, wait until each has settled, and up to ``within_s`` for work after turns. Return the turns
        that could not be settled."""
        unsettled = await self.sessions.close(SHUTDOWN, within_s)
        await self.streams.close()
        await self.snapshots.close()
        # Last, as turns that settle at the end need the lease.
        await self.heartbeat.close()
        self.runner.tool_storage.close()
        if self._host.servers is not None:
            await self._host.servers.close()
        return unsettled
