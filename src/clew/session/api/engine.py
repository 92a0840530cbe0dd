"""The engine: the operations of any engine, and those that only the engine in this process has."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload
from warnings import warn

import msgspec

from clew.convert import convert
from clew.errors import BlobNotFound, Invalid, InvalidId, InvalidInput, NotFound, SessionBusy
from clew.live.base import LiveStream, Status
from clew.session.api.files import Files
from clew.session.api.history import History
from clew.session.api.permissions import Permissions
from clew.session.api.prompts import SavedPrompts
from clew.session.api.runs import Runs
from clew.session.api.servers import Servers
from clew.session.api.sessions import Sessions
from clew.session.api.settings import Settings
from clew.session.api.transfer import Transfer
from clew.store.base import Blob, Damage, Rebuilt
from clew.transcript.chunk import chunk_dict
from clew.transcript.session import Model
from clew.transcript.spend import GROUPINGS, Grouping, UsageQuery, UsageReport, parse_bound, report
from clew.transcript.value_check import check_value

# Runtime modules are imported inside functions, when an engine is opened, so that importing clew stays fast.
if TYPE_CHECKING:
    from clew.compaction.plan import Plan
    from clew.providers.base import ModelListing, ModelRequest, StepEnd
    from clew.session.api.turn_stream import TurnStream
    from clew.session.context.compact import Compacted
    from clew.session.history.snapshot import SnapshotLayer
    from clew.session.hook_map import Changing, Observing
    from clew.session.hooks import Hook, HookName
    from clew.session.host import Host
    from clew.session.prompt.submission import Submission, TurnOutcome
    from clew.session.turn.answers import Answered, Decision
    from clew.session.turn.calls import ToolCallValue
    from clew.transcript.message import MessageRow
    from clew.transcript.session import Session
    from clew.triggers.events import Events
    from clew.triggers.router import Scope
    from clew.triggers.schedules import Schedules
    from clew.triggers.webhooks import Webhooks

__all__ = ["ADMIN_ONLY", "AgentList", "AgentShape", "Engine", "Operations", "ReplicaShape"]

ADMIN_ONLY: Final = frozenset(
    {
        *("accept_loss", "backup", "change_settings", "check_ready", "close", "drain", "hook", "is_idle", "join"),
        *("figures", "known_statuses", "losses", "metrics", "rebuild", "replicas", "scoped", "write_ledger"),
        *("give_mcp_servers", "mcp_servers", "start_mcp_server"),
        *("clock", "config", "dispatcher", "host", "mint", "store"),
    }
)
"""Operations on the host and the whole store, which are not available to an owner."""
_MAX_OWNER_CHARS: Final = 256
T = TypeVar("T")
_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


class AgentShape(msgspec.Struct, frozen=True):
    """An agent that a session can use."""

    name: str
    description: str
    mode: Literal["primary", "subagent", "internal"]
    model: Model | None
    tools: tuple[str, ...] | None
    max_steps: int
    """The agent's own limit, or that of the store's preset."""
    source: Literal["builtin", "user", "project"]


class AgentList(msgspec.Struct, frozen=True):
    """The available agents. ``notices`` report unusable manifests, with the reason."""

    agents: tuple[AgentShape, ...]
    notices: tuple[str, ...]


class ReplicaShape(msgspec.Struct, frozen=True):
    """A process that serves the store. Times are by the store's clock. ``alive``: its lease is valid; ``here``: it is
    this process."""

    id: str
    url: str | None
    version: str
    started_at: int
    beat_at: int
    lease_until: int
    draining: bool
    alive: bool
    here: bool
    sessions: tuple[str, ...]


class Operations(Sessions, Runs, History, Permissions, Transfer, Files, SavedPrompts, Settings, Servers):
    """The operations of an engine, whether it runs in this process or in a server that owns the store."""

    events: Events
    schedules: Schedules
    webhooks: Webhooks

    async def models(self) -> list[ModelListing]:
        """Return the known models: usable ones first, then the others, each with the reason."""
        listed = await asyncio.to_thread(self._host.providers.models)
        chosen = self._host.choices.default_model
        if chosen is None:
            return list(listed)
        return [msgspec.structs.replace(one, default=one.id == str(chosen.plain)) for one in listed]

    async def agents(self, workspace: str | Path | None = None) -> AgentList:
        """Return the agents a session can use; with a ``workspace``, including those of its project."""
        from clew.compaction.presets import presets

        folder = Path(workspace) if workspace else None
        if self.roots is not None:
            folder = await self._resolve_workspace(folder)
        catalog = await asyncio.to_thread(self._host.agents, folder, self.owner)
        # The limit of sessions without a preset of their own. If the config named none, it has the store's default.
        preset = presets()[self._host.config.compaction.preset or "guide"]
        limit = self._host.choices.max_steps or preset.max_steps
        shown, notices = [], [*catalog.notices]
        for agent in catalog.list():
            model = None
            try:
                model = self._host.providers.parse(agent.model) if agent.model is not None else None
            except Invalid as error:
                notices.append(f"{agent.path}: its model cannot be used; {error}")
            values = {"model": model, "max_steps": agent.max_steps or limit}
            shown.append(convert({**msgspec.structs.asdict(agent), **values}, AgentShape))
        return AgentList(tuple(shown), tuple(notices))

    async def blob(self, sha256: str) -> Blob:
        """Return the bytes of a file that a message refers to."""
        if not _SHA256.fullmatch(sha256):
            raise InvalidId("a blob id is a SHA-256 digest: 64 lowercase hex digits")
        blob = await self._store.find_blob(sha256, self.owner)
        if blob is None:
            raise BlobNotFound("no blob with this SHA-256", sha256=sha256)
        return blob

    async def usage(
        self, by: Grouping = "day", *, since: int | str | None = None, until: int | str | None = None
    ) -> UsageReport:
        """Return the usage and cost of all model calls, whatever their purpose, in groups.

        ``since`` is inclusive and ``until`` exclusive: epoch milliseconds or ISO 8601, in UTC unless there is an
        offset. If ``until`` is a date without a time, that day is included. Calls of deleted sessions count too.
        """
        if by not in GROUPINGS:
            raise InvalidInput(f"by must be {', '.join(GROUPINGS[:-1])} or {GROUPINGS[-1]}, not {by!r}")
        query = UsageQuery(by, parse_bound(since), parse_bound(until, is_end=True), self.owner)
        # One report at a time: each may take long, and several would occupy all readers of the store.
        async with self._usage_lock:
            return report(await self._store.load_usage(query))

    async def replicas(self) -> list[ReplicaShape]:
        """Return the processes that serve the store, oldest first, with their sessions; empty with a single owner."""
        replica_id, shown = self._host.lease.replica_id, []
        for one in await self._store.list_replicas():
            more = {"here": one.id == replica_id, "sessions": await self._store.run_by(one.id)}
            shown.append(convert({**msgspec.structs.asdict(one), **more}, ReplicaShape))
        return shown

    async def losses(self) -> tuple[Damage, ...]:
        """Return what was acknowledged but is missing from the store, until the loss is accepted."""
        return await self._store.losses()

    async def accept_loss(self, loss_id: str) -> None:
        """Accept a loss, named by its id, so that it is no longer reported."""
        if not await self._store.accept_loss(loss_id, self._host.clock.now_ms()):
            raise NotFound(f"there is no loss {loss_id}", loss_id=loss_id)


class Engine(Operations):
    """Sessions and their operations. Created by :func:`clew.open`."""

    def __init__(self, host: Host, snapshots: SnapshotLayer | None = None) -> None:
        from clew.session.history.snapshot import attach
        from clew.session.runtime import Runtime
        from clew.triggers.dispatcher import Dispatcher

        super().__init__(host, Runtime(host), snapshots)
        self.host = host
        self.store = host.store
        self.config = host.config
        self.clock = host.clock
        self.mint = host.mint
        self.dispatcher = Dispatcher(host, self._runtime, self._scope())
        self.events = self.dispatcher.events
        self.schedules = self.dispatcher.schedules
        self.webhooks = self.dispatcher.webhooks
        if snapshots is not None:
            attach(host.hooks, snapshots)

    @overload
    async def start(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
        output: type[T],
        metadata: Mapping[str, Any] | None = None,
    ) -> TurnStream[T]: ...

    @overload
    async def start(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
        output: Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> TurnStream[Any]: ...

    async def start(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
        output: type[T] | Mapping[str, Any] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> TurnStream[Any]:
        """Send a prompt, which is durable when this returns, and return its stream.

        A prompt that is refused, for example for a busy session or an unknown model or agent, raises here, before
        anything has started. A prompt already sent with this ``message_id`` is not run again; its stream is returned.
        ``output`` is the answer's type or JSON Schema; the stream's ``output()`` returns the value.
        """
        from clew.tools.hints import schema_and_reader

        schema, read = schema_and_reader(output)
        submission = await self.submit(
            session_id,
            prompt,
            model=model,
            agent=agent,
            message_id=message_id,
            on_busy="reject",
            attended=attended,
            output=schema,
            metadata=metadata,
        )
        if submission.queued:
            raise SessionBusy("this message is queued behind a running turn", session_id=session_id)
        return await self.follow(session_id, submission, read=read)

    async def follow(
        self, session_id: str, submission: Submission, *, read: Callable[[Any], Any] | None = None
    ) -> TurnStream[Any]:
        """Return the stream of a submission, which may have been sent earlier. ``read`` converts a structured output to
        its type."""
        from clew.session.api.turn_stream import TurnStream, follow

        session_id = await self._resolve_session(session_id)
        batches = await follow(self._store, self.find_stream, session_id, submission)
        return TurnStream(submission, batches, lambda named: self._store.find_message(session_id, named), read)

    async def answer_stream(
        self,
        session_id: str,
        approval_id: str,
        decision: Decision,
        reason: str | None = None,
        pattern: str | None = None,
    ) -> tuple[int, TurnStream[Any] | None]:
        """Answer an approval request like ``answer``; if no request is left, also return the stream of the resumed run.

        The stream starts at the first chunk of that run, even if it has ended by then.
        """
        answered = await self._answer(session_id, approval_id, decision, reason, pattern)
        return await self._follow_answer(session_id, answered)

    async def answer_question_stream(
        self, session_id: str, tool_call_id: str, output: Any
    ) -> tuple[int, TurnStream[Any] | None]:
        """Answer a question of the model like ``answer_question``; if no request is left, also return the stream of the
        resumed run."""
        return await self._follow_answer(session_id, await self._answer_question(session_id, tool_call_id, output))

    async def _follow_answer(self, session_id: str, answered: Answered) -> tuple[int, TurnStream[Any] | None]:
        stream = None if answered.submission is None else await self.follow(session_id, answered.submission)
        return answered.remaining, stream

    def scoped(self, owner: str, *, roots: Iterable[str | Path] = ()) -> Engine:
        """Return a view of this engine for one owner, which finds and creates only sessions of that owner.

        Data of other owners is not found. ``roots`` are the folders in which, or below which, these sessions may have
        their workspaces; without roots they have none. Operations on the whole store, such as a backup, are not
        available to an owner.
        """
        check_value([owner], "owner")
        if not 1 <= len(owner) <= _MAX_OWNER_CHARS:
            raise InvalidInput(f"an owner must be a text of 1 to {_MAX_OWNER_CHARS} characters")
        scoped = ScopedEngine.__new__(ScopedEngine)
        vars(scoped).update(vars(self), owner=owner, roots=tuple(Path(root).expanduser().resolve() for root in roots))
        scoped.events, scoped.schedules, scoped.webhooks = self.dispatcher.entry_points(scoped._scope())
        return scoped

    def _scope(self) -> Scope:
        from clew.triggers.router import Scope

        return Scope(self.owner, self._resolve_session, self._resolve_turn, self._draft)

    async def find_prompt_of(self, session_id: str, message_id: str | None = None) -> MessageRow:
        """Return the user message that an answer replies to, by default the answer of the newest turn."""
        from clew.session.api.turn_stream import find_asked_message

        return await find_asked_message(self._store, await self._resolve_session(session_id), message_id)

    async def run(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
    ) -> AsyncIterator[dict[str, Any]]:
        """Run a prompt like ``start`` and yield its stream: AI SDK chunks as dicts, each already durable.

        Leaving the loop early does not stop the run. A refusal raises before the first chunk.
        """
        started = await self.start(
            session_id, prompt, model=model, agent=agent, message_id=message_id, attended=attended
        )
        async for batch in started.batches:
            for chunk in batch:
                yield chunk_dict(chunk)

    async def find_stream(self, session_id: str) -> LiveStream | None:
        """Return the stream of the session's active run, in this process or another, in batches of chunks."""
        return await self._runtime.streams.find(await self._resolve_session(session_id))

    async def find_batches(
        self, session_id: str, *, replay: bool = True, message_id: str | None = None
    ) -> AsyncIterator[Sequence[Any]] | None:
        """Return the same chunks as ``attach``, in batches; None if there is no run to follow."""
        from clew.session.api.turn_stream import find_batches

        find = self._runtime.streams.find
        return await find_batches(
            self._store, find, await self._resolve_session(session_id), replay=replay, message_id=message_id
        )

    def parse_model(self, named: str | Model | dict[str, Any]) -> Model:
        """Return the model and variant that a name refers to, resolved as by every method that takes one."""
        return self._host.providers.parse(named)

    def is_idle(self, session_id: str) -> bool:
        """Return whether the session is idle in this process."""
        return not self._runtime.sessions.is_live(session_id)

    async def statuses(
        self, session_ids: Iterable[str], *, unsettled: Collection[str] | None = None
    ) -> dict[str, Status]:
        """Return the status of each session. A caller that has listed them passes those with an open or failed turn as
        ``unsettled``; the others are idle unless they ran in this process."""
        if self.owner is not None:
            session_ids = [await self._resolve_session(session_id) for session_id in session_ids]
        known = {session_id: self._host.live.status(session_id) for session_id in session_ids}
        if unsettled is None:
            unsettled = {*await self._store.unsettled_sessions(known), *await self._store.failed_sessions(known)}
        # A session that failed in this process may have been rewound since.
        maybe_active = {*unsettled, *(id_ for id_, status in known.items() if status and status.state == "error")}
        return {
            session_id: await self.get_status(session_id) if session_id in maybe_active else status or Status("idle")
            for session_id, status in known.items()
        }

    def known_statuses(self, session_ids: Iterable[str]) -> dict[str, Status | None]:
        """Return the last known status of each session without reading the store; None if none is known."""
        return {session_id: self.host.live.status(session_id) for session_id in session_ids}

    @overload
    def hook(self, name: Literal["message.user"], hook: Changing[MessageRow]) -> None: ...

    @overload
    def hook(self, name: Literal["before_model_call"], hook: Changing[ModelRequest]) -> None: ...

    @overload
    def hook(self, name: Literal["before_tool_call"], hook: Changing[ToolCallValue]) -> None: ...

    @overload
    def hook(self, name: Literal["before_compaction"], hook: Changing[Plan]) -> None: ...

    @overload
    def hook(self, name: Literal["session_create", "session_delete"], hook: Observing[Session]) -> None: ...

    @overload
    def hook(self, name: Literal["session_save"], hook: Observing[str]) -> None: ...

    @overload
    def hook(self, name: Literal["after_model_call"], hook: Observing[tuple[ModelRequest, StepEnd]]) -> None: ...

    @overload
    def hook(self, name: Literal["after_tool_call"], hook: Observing[tuple[ToolCallValue, dict[str, Any]]]) -> None: ...

    @overload
    def hook(self, name: Literal["after_compaction"], hook: Observing[Compacted]) -> None: ...

    @overload
    def hook(self, name: Literal["turn_finished"], hook: Observing[TurnOutcome]) -> None: ...

    def hook(self, name: HookName, hook: Hook) -> None:
        """Add a hook; see the how-to for its arguments and effects."""
        self.host.hooks.add(name, hook)

    async def backup(self, target: str | Path) -> None:
        """Write a consistent copy of the store while it is in use."""
        await self.store.backup(Path(target))

    async def write_ledger(self, target: str | Path) -> None:
        """Export sessions, turns, messages, tool calls and events to tables of the same names in a new SQLite file."""
        await self.store.write_ledger(Path(target))

    async def rebuild(self, target: str | Path) -> Rebuilt:
        """Build a new store from the event log alone, and compare it with this one. Requires ``event_log``."""
        return await self.store.rebuild(Path(target))

    async def join(self, *, stays: bool) -> None:
        """Register this process as a replica of a shared store. Called when the engine is opened."""
        await self._runtime.heartbeat.open(stays=stays)

    def figures(self) -> str:
        """Return :meth:`metrics`, which this was called in the last release."""
        warn("Engine.figures is called Engine.metrics now", DeprecationWarning, stacklevel=2)
        return self.metrics()

    def metrics(self) -> str:
        """Return metrics of this engine since it was opened, in Prometheus text format."""
        running = len(self._runtime.sessions.live_ids())
        now = {
            "clew_running_sessions": ("Sessions with an active run here.", float(running)),
            "process_cpu_seconds_total": ("CPU time of this process.", time.process_time()),
        }
        return self.host.telemetry.metrics.text(now)

    async def check_ready(self) -> None:
        """Raise if no run can start in this process now: it is closing, has lost its lease, or cannot use its store."""
        self.host.lease.check_open()
        await self.store.list_replicas()
        await self.store.check_writable()

    async def drain(self, within_s: float) -> None:
        """Start no more runs, and give the active ones this long to finish; ``close`` settles the rest."""
        await self.dispatcher.close()
        await self._runtime.heartbeat.drain(within_s)

    async def close(self, within_s: float = 30.0) -> tuple[str, ...]:
        """End every run, settle it as interrupted, and let background work such as summaries finish.

        Called when the engine's context exits. Return the ids of turns that ended but could not be settled; they are
        settled when the store is opened next. Each id is returned only once.
        """
        from clew.tools.process.program import programs_ended

        await self.dispatcher.close()
        unsettled = await self._runtime.close(within_s)
        # A run does not wait for a tool that ignores its abort signal, but the process must before it exits.
        await programs_ended()
        await self.host.hooks.drain()
        await self.host.providers.close()
        return unsettled


class ScopedEngine(Engine):
    """The engine as one owner sees it. It refuses operations on the whole store; the others check session ids."""

    def __getattribute__(self, name: str) -> Any:
        if name in ADMIN_ONLY:
            raise NotFound(f"{name} concerns the whole store; it is not available to an owner")
        return super().__getattribute__(name)
