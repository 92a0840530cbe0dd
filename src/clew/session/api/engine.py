"""The engine in this process: the operations of any engine, and those that only this one has."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload
from warnings import warn

from clew.errors import ClewError, InvalidInput, NotFound, SessionBusy
from clew.live.base import Live, LiveStream, Status
from clew.session.api.operations import Operations
from clew.store.base import Rebuilt, Store
from clew.transcript.chunk import chunk_dict
from clew.transcript.session import Model
from clew.transcript.stream_cursor import StreamCursor
from clew.transcript.value_check import check_value

# Runtime modules are imported inside functions, when an engine is opened, so that importing clew stays fast.
if TYPE_CHECKING:
    from clew.clock import Clock
    from clew.compaction.plan import Plan
    from clew.config import Config
    from clew.ids import Mint
    from clew.providers.base import ModelRequest, StepEnd
    from clew.session.api.turn_stream import TurnStream
    from clew.session.cluster.lease import Lease
    from clew.session.context.compact import Compacted
    from clew.session.hook_map import Changing, Observing
    from clew.session.hooks import Hook, HookName
    from clew.session.host import Host
    from clew.session.prompt.submission import Submission, TurnOutcome
    from clew.session.runtime import Runtime
    from clew.session.turn.answers import Answered, Decision
    from clew.session.turn.calls import ToolCallValue
    from clew.transcript.message import MessageRow
    from clew.transcript.session import Session
    from clew.triggers.dispatcher import Dispatcher
    from clew.triggers.events import Events
    from clew.triggers.router import Scope
    from clew.triggers.schedules import Schedules
    from clew.triggers.webhooks import Webhooks

__all__ = ["ADMIN_ONLY", "Engine"]

ADMIN_ONLY: Final = frozenset(
    {
        *(
            "accept_loss",
            "backup",
            "change_settings",
            "check_ready",
            "close",
            "disk_use",
            "drain",
            "hook",
            "is_idle",
            "join",
            "preload",
        ),
        *("figures", "known_statuses", "losses", "metrics", "rebuild", "replicas", "scoped", "write_ledger"),
        *("give_mcp_servers", "mcp_servers", "preload", "start_mcp_server"),
        *("clock", "config", "dispatcher", "host", "mint", "store"),
    }
)
"""Operations on the host and the whole store, which are not available to an owner."""
_MAX_OWNER_CHARS: Final = 256
_PRELOADED_SESSIONS: Final = 20
T = TypeVar("T")


class Engine(Operations):
    """Sessions and their operations. Created by :func:`clew.open`."""

    def __init__(
        self,
        store: Store,
        live: Live,
        lease: Lease,
        compose: Callable[[], Host],
    ) -> None:
        super().__init__(store, live, lease, compose)
        self.store = store

    @cached_property
    def host(self) -> Host:
        return self._host

    @cached_property
    def config(self) -> Config:
        return self._host.config

    @cached_property
    def clock(self) -> Clock:
        return self._host.clock

    @cached_property
    def mint(self) -> Mint:
        return self._host.mint

    @cached_property
    def _services(self) -> tuple[Runtime, Dispatcher]:
        """The runtime, and the dispatcher, which runs need too: their tools add schedules."""
        from clew.session.runtime import Runtime
        from clew.triggers.dispatcher import Dispatcher

        runtime = Runtime(self._host)
        return runtime, Dispatcher(self._host, runtime, self._scope())

    @property
    def _runtime(self) -> Runtime:
        return self._services[0]

    def _is_live_here(self, session_id: str) -> bool:
        return "_services" in vars(self) and self._runtime.sessions.is_live(session_id)

    @cached_property
    def dispatcher(self) -> Dispatcher:
        return self._services[1]

    # Made when first used, and writable like an attribute: an owner's view has its own.
    @cached_property
    def events(self) -> Events:  # type: ignore[override]
        return self.dispatcher.events

    @cached_property
    def schedules(self) -> Schedules:  # type: ignore[override]
        return self.dispatcher.schedules

    @cached_property
    def webhooks(self) -> Webhooks:  # type: ignore[override]
        return self.dispatcher.webhooks

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
        batches = await follow(self._store, self._runtime.streams, session_id, submission)
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

        An owner is any text of 1 to 256 characters. Subagents, branches, imports and what events start belong to it
        too; labels, aliases, webhooks, event ids, saved prompts and a folder's rules are its own. Data of other owners
        is not found. ``roots`` are the folders in which, or below which, these sessions may have their workspaces;
        without roots they have none. Commands run in a sandbox or not at all. Operations on the whole store, such as a
        backup, are not available to an owner.
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
        self, session_id: str, *, replay: bool = True, message_id: str | None = None, after: str | None = None
    ) -> AsyncIterator[Sequence[Any]] | None:
        """Return the same chunks as ``attach``, in batches; None if there is no run to follow."""
        from clew.session.api.turn_stream import find_batches

        cursor = None if after is None else StreamCursor.parse(after)
        streams, session_id = self._runtime.streams, await self._resolve_session(session_id)
        return await find_batches(self._store, streams, session_id, replay=replay, message_id=message_id, after=cursor)

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
        known = {session_id: self._live.status(session_id) for session_id in session_ids}
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
        return {session_id: self._live.status(session_id) for session_id in session_ids}

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
        """Add a hook; see Hooks in the reference for its arguments and effects."""
        self.host.hooks.add(name, hook)

    async def backup(self, target: str | Path) -> None:
        """Write a consistent copy of the store while it is in use. An existing target is refused, and so is a store in
        memory."""
        await self.store.backup(Path(target))

    async def write_ledger(self, target: str | Path) -> None:
        """Export sessions, turns, messages, tool calls and events to tables of the same names in a new SQLite file.
        Only for a ``sqlite:`` store; the command ``clew ledger`` exports any."""
        await self.store.write_ledger(Path(target))

    async def rebuild(self, target: str | Path) -> Rebuilt:
        """Build a new store from the event log alone, and compare it with this one. Requires ``event_log``, and a
        target that does not exist."""
        return await self.store.rebuild(Path(target))

    async def join(self, *, stays: bool) -> None:
        """Register this process as a replica of a shared store. Called when the engine is opened."""
        from clew.session.history.restore import recover_snapshots

        await self._runtime.heartbeat.open(stays=stays)
        await recover_snapshots(self._host)
        if stays:
            self._runtime.snapshots.collect_later()

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

    async def preload(self) -> None:
        """Import the libraries that the default model and those of the newest sessions need, on a thread, so that their
        first calls do not wait for it. Returns at once."""
        load = getattr(self._host.providers, "load_libraries", None)
        if load is None:
            return  # the host's own providers
        default = self._host.choices.default_model or self._host.providers.default_model()
        models = [default]
        with contextlib.suppress(ClewError):
            models += [session.model for session in (await self.list_sessions(limit=_PRELOADED_SESSIONS)).sessions]
        # A daemon: a process that ends does not wait for it.
        threading.Thread(target=load, args=(models,), name="clew-preload", daemon=True).start()

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
        if "_host" not in vars(self):
            return ()  # nothing was started
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
