"""The runtime of an engine: what acts on its sessions, put together once."""

from __future__ import annotations

from clew.live.base import Signal, Status
from clew.runtime.answers import Answers
from clew.runtime.compact import Compacted
from clew.runtime.continuation import Continuation
from clew.runtime.heartbeat import Heartbeat
from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions
from clew.runtime.outbound import Outbound
from clew.runtime.prompts import Prompts
from clew.runtime.prune import prune_idle
from clew.runtime.queue import Queue, with_pause
from clew.runtime.ready import settle_startable
from clew.runtime.rule_book import RuleBook
from clew.runtime.runner import Runner
from clew.runtime.settle import SHUTDOWN
from clew.runtime.stream_elsewhere import LiveStreams
from clew.runtime.submission import Outcomes
from clew.runtime.waiting import present_status
from clew.store.unit import STORE_WIDE, AppendChunks, DeleteSession, FinishStep, MarkFolded, Unit
from clew.transcript.session import Session

__all__ = ["Runtime"]


class Runtime:
    """Each of its parts knows those before it, and none after it."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._outcomes = Outcomes()
        host.store.watch(self._tell_saved)
        self.sessions = LiveSessions(host)
        self.streams = LiveStreams(host.store, host.live)
        self.outbound = Outbound(host)
        self.queue = Queue(host, self.sessions, self._outcomes, self.outbound)
        self.runner = Runner(host, self.sessions, self.queue, self._outcomes, self.outbound)
        self.prompts = Prompts(host, self.sessions, self.queue, self.runner, self._outcomes, self.outbound)
        self.answers = Answers(host, self.sessions, self.runner)
        self.rule_book = RuleBook(host, self.sessions, self.answers)
        self.continuation = Continuation(host, self.sessions, self.queue, self.runner, self.outbound)
        self.heartbeat = Heartbeat(host, self.sessions, self.runner, self.continuation, self.outbound, self._outcomes)

    def _tell_saved(self, unit: Unit) -> None:
        """Tell of each change of a session that is durable, but not of every word of a message that grows."""
        kinds = {type(write) for write in unit.writes}
        grows = unit.sync == "process" and bool(kinds & {AppendChunks, MarkFolded}) and FinishStep not in kinds
        gone = DeleteSession in kinds
        if unit.session_id != STORE_WIDE and not grows and not gone:
            self._host.hooks.observe("session_save", unit.session_id, unit.session_id)

    async def status(self, session: Session) -> Status:
        """What the session is doing. After a restart that is worked out from what is stored."""
        status = await present_status(self._host, self.sessions, session.id)
        return await with_pause(self._host.store, session, status)

    async def with_pause(self, session_id: str, status: Status) -> Status:
        """A status as it is shown: with what there is to say of the queue."""
        session = await self._host.store.find_session(session_id)
        return status if session is None else await with_pause(self._host.store, session, status)

    async def prune(self, session_id: str) -> Compacted:
        """Show the model stubs in place of tool outputs, on a session nobody runs on."""
        async with self.sessions.lock(session_id):
            session = await self.sessions.get_open(session_id)
            await settle_startable(self._host, self.sessions, session_id)
            done = await prune_idle(self._host, session)
            if done.compacted:
                self.sessions.show_changed(session_id)
            return done

    async def begin_deletion(self, session_id: str) -> None:
        """Abort what has a session that is about to be deleted."""
        await self.sessions.begin_deletion(session_id, "the session is deleted")

    def end_deletion(self, session_id: str, *, gone: bool) -> None:
        """The end of a deletion, also of one that failed."""
        self.sessions.end_deletion(session_id)
        if gone:
            self._outcomes.cancel_session(session_id)
            self._host.live.forget(session_id)
            # A run in another replica is refused whatever it writes; this stops its tools, too.
            self._host.live.signal(Signal(session_id, "stop"))
            self.runner.tool_memory.drop(session_id)
            if self._host.servers is not None:
                self._host.servers.forget(session_id)

    async def close(self, within_s: float) -> tuple[str, ...]:
        """Stop every run and wait until each has settled, and that long for the work after a turn. The turns that the
        store did not let settle."""
        unsettled = await self.sessions.close(SHUTDOWN, within_s)
        await self.streams.close()
        # Last: what is settled at the end is settled under the lease.
        await self.heartbeat.close()
        self.runner.tool_memory.close()
        if self._host.servers is not None:
            await self._host.servers.close()
        return unsettled
