"""One connection to an MCP server: started on demand, ended when idle, restarted after a pause when it fails.

A server's misbehaviour is an error for its caller only. The connection has its own task, because the SDK must open and
close it in the same task.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from clew.clock import Clock, Timer
from clew.errors import ToolFailed
from clew.mcp_server import McpServer
from clew.tools.mcp.definitions import Definitions, read_definitions
from clew.tools.thread import run_in_thread

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["IDLE_MS", "MAX_MESSAGE", "Connection", "LimitExceeded", "RateLimit", "ResourceListener", "Wire"]


MAX_MESSAGE: Final = 8 * 1024 * 1024
_BURST_BYTES: Final = 32 * 1024 * 1024
_BYTES_PER_S: Final = 8 * 1024 * 1024
_BURST_MESSAGES: Final = 2_000
_MESSAGES_PER_S: Final = 500
IDLE_MS: Final = 30 * 60 * 1000
_MIN_RETRY_MS: Final = 1_000
_MAX_RETRY_MS: Final = 60_000
_END_TIMEOUT_S: Final = 5.0
_MIN_PROBE_S: Final = 2.0
_MAX_PROBE_S: Final = 5.0
_MAX_OVERDUE: Final = 2
"""Calls in a row that may run out of time before a server that answers other requests is started again."""
_OVERDUE_SHARE: Final = 0.9
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)
T = TypeVar("T")
Reporter = Callable[[Any], None]


class LimitExceeded(Exception):
    """The server sends more than is accepted."""


class Wire:
    """The state of one transport. ``closed`` is set when it has ended, ``why`` is the reason."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.why: str | None = None

    def close(self, why: str) -> None:
        self.why = self.why or why
        self.closed.set()


class RateLimit:
    """A limit for bytes and messages of a server: a burst, and then a rate."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self._bytes: float = _BURST_BYTES
        self._messages: float = _BURST_MESSAGES

    def spend(self, size: int = 0, messages: float = 0) -> None:
        now = time.monotonic()
        passed, self._at = now - self._at, now
        self._bytes = min(self._bytes + passed * _BYTES_PER_S, _BURST_BYTES) - size
        self._messages = min(self._messages + passed * _MESSAGES_PER_S, _BURST_MESSAGES) - messages
        if self._bytes < 0 or self._messages < 0:
            raise LimitExceeded("it sends more than a server may")


class ResourceListener:
    """A subscription to the changes of one resource."""

    def __init__(
        self,
        uri: str,
        on_change: Callable[[], None],
        on_problem: Callable[[str | None], None],
        remove: Callable[[ResourceListener], None],
    ) -> None:
        self.uri, self.on_change, self.on_problem, self._remove = uri, on_change, on_problem, remove

    def close(self) -> None:
        self._remove(self)


class Connection:
    """A connection to one server, for one workspace of one owner. All methods run in the event loop's thread."""

    def __init__(self, name: str, server: McpServer, workspace: Path | None, clock: Clock) -> None:
        self.name, self.server = name, server
        self._workspace, self._clock = workspace, clock
        self.state: Literal["idle", "starting", "ready", "failed"] = "idle"
        self.error: str | None = None
        self.known: Definitions | None = None
        """The definitions it listed last; they stay while it is not running."""
        self.accepted: Definitions | None = None
        """The definitions a run last received."""
        self._sdk: Any = None
        self._wire = Wire()
        self._client: Client | None = None
        self._task: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._stop = asyncio.Event()
        self._stale = False
        self._listing = asyncio.Lock()
        self._closed = False
        self._busy = 0
        self._probing: asyncio.Task[None] | None = None
        self._overdue = 0
        self._listeners: list[ResourceListener] = []
        self._listeners_changed = asyncio.Event()
        self._keep_running_task: asyncio.Task[None] | None = None
        self._failures = 0
        self._not_before = self._started_at = 0.0
        self._idle: Timer | None = None

    @property
    def is_stale(self) -> bool:
        """Return whether the server has announced that its tools changed."""
        return self._stale

    @property
    def is_busy(self) -> bool:
        return self._busy > 0 or self.state == "starting" or bool(self._listeners)

    def start(self) -> None:
        """Start the server unless it runs. Raises ``ToolFailed`` if it cannot be started now."""
        if self._closed:
            raise ToolFailed(f"the MCP server {self.name} was removed")
        self._touch()
        if self._task is not None:
            return
        wait = self._not_before - self._clock.monotonic_ms()
        if wait > 0:
            raise ToolFailed(f"{self._failure()}; next attempt in {max(1, round(wait / 1000))} s at the earliest")
        self._started_at = self._clock.monotonic_ms()
        self.state, self._settled, self._stop = "starting", asyncio.Event(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"mcp-{self.name}")

    async def ready(self, *, refresh: bool = False) -> Definitions:
        """Return its current definitions. ``refresh`` lists them again and skips the pause after a failure. Raises
        ``ToolFailed``."""
        if refresh:
            self._stale, self._not_before = self._client is not None, 0.0
        if self._probing is not None:
            await asyncio.wait({self._probing})
        while self._task is not None and self._stop.is_set():
            await asyncio.wait({self._task})
        self.start()
        await self._settled.wait()
        if self._client is None:
            raise ToolFailed(self._failure())
        # One caller lists them, the others wait, so that none uses definitions the server has withdrawn.
        async with self._listing:
            if self._stale and self._client is not None:
                await self._renew(self._client)
        if self.known is None:
            raise ToolFailed(self._failure())
        return self.known

    async def _end_if_hung(self) -> None:
        """End a server that left a call unanswered and does not list its tools; the next call restarts it. A server
        that does list them may only have a slow tool, unless several calls in a row time out."""
        try:
            if self._client is not None and (self._overdue < _MAX_OVERDUE or self._busy):
                limit = min(_MAX_PROBE_S, max(_MIN_PROBE_S, self.server.timeout_s / 4))
                await _await_or_abandon(self._sdk.list_tools(self._client), limit)
                return
        except TimeoutError:
            pass
        except Exception:
            # An error is an answer; a broken connection has already ended.
            return
        await self._abandon("it does not answer")

    async def _abandon(self, why: str) -> None:
        """End the server without a closing request, which it would have to answer."""
        task = self._task
        self._overdue = 0
        self._wire.close(why)
        if task is not None:
            await asyncio.wait({task}, timeout=_END_TIMEOUT_S)
            task.cancel()

    async def _renew(self, client: Client) -> None:
        self._stale = False
        try:
            self.known = await _await_or_abandon(self._list(client), self.server.start_s)
        except TimeoutError:
            await self._abandon(f"it did not list its tools within {self.server.start_s:g} s")
            raise ToolFailed(self._failure()) from None
        except BaseException as error:
            self._stale = True
            if not isinstance(error, Exception):
                raise
            raise ToolFailed(f"the MCP server {self.name} did not list its changed tools: {error}") from error

    async def call(self, tool: str, args: Mapping[str, Any], report: Reporter, expected: Definitions) -> dict[str, Any]:
        """Call a tool and return the answer as JSON, if the definitions still are the expected ones. Cancelling the
        caller cancels the request. Raises ``ToolFailed``."""
        if (await self.ready()).digest != expected.digest:
            raise ToolFailed(f"the MCP server {self.name} has just changed its tools; the call was not made")
        client, task = self._client, self._task
        if client is None or task is None:
            raise ToolFailed(self._failure())
        self._busy += 1
        asked = self._clock.monotonic_ms()
        try:
            answer: dict[str, Any] = await _await_or_abandon(self._sdk.call_tool(client, tool, args, report))
        except asyncio.CancelledError:
            # The caller's limit began before `asked`, so a call that reaches it takes a little less from here.
            self._overdue += self._clock.monotonic_ms() - asked >= self.server.timeout_s * 1000 * _OVERDUE_SHARE
            if self._probing is None or self._probing.done():
                self._probing = asyncio.get_running_loop().create_task(self._end_if_hung())
            raise
        except self._sdk.ConnectionLost as lost:
            # The reason is known once the task has ended.
            self._wire.close(str(lost.__cause__))
            await asyncio.wait({task}, timeout=_END_TIMEOUT_S)
            raise ToolFailed(f"{self._failure()}; what the call did is unknown") from None
        finally:
            self._busy -= 1
            self._touch()
        self._failures = self._overdue = 0
        return answer

    def subscribe(
        self, uri: str, on_change: Callable[[], None], on_problem: Callable[[str | None], None]
    ) -> ResourceListener:
        """Report changes of a resource. The connection is kept running for it, and restarted when it fails."""
        listener = ResourceListener(uri, on_change, on_problem, self._remove)
        self._listeners.append(listener)
        self._listeners_changed.set()
        if self._keep_running_task is None:
            self._keep_running_task = asyncio.get_running_loop().create_task(self._keep_running())
        return listener

    def _remove(self, listener: ResourceListener) -> None:
        self._listeners = [one for one in self._listeners if one is not listener]
        self._listeners_changed.set()
        if not self._listeners and self._keep_running_task is not None:
            self._keep_running_task.cancel()
            self._keep_running_task = None

    async def close(self) -> None:
        """End the server permanently, with all its processes: a run that still has its tools cannot restart it."""
        self._closed = True
        for listener in self._listeners:
            listener.on_problem(f"the MCP server {self.name} was removed")
        if self._keep_running_task is not None:
            self._keep_running_task.cancel()
        if self._idle is not None:
            self._idle.cancel()
        if self._probing is not None:
            self._probing.cancel()
        self._stop.set()
        if self._task is not None:
            if self.state == "starting":
                self._task.cancel()
            await asyncio.wait({self._task})

    def _failure(self) -> str:
        return f"the MCP server {self.name} does not work: {self.error or 'it ended'}"

    def _touch(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._clock.call_later(IDLE_MS, self._release)

    def _release(self) -> None:
        if self.is_busy:
            self._touch()
        else:
            self._stop.set()

    async def _keep_running(self) -> None:
        """Keep the server running for its listeners."""
        while True:
            try:
                await self.ready()
                for listener in self._listeners:
                    listener.on_problem(None)
                if self._task is not None:
                    await asyncio.wait({self._task})
            except ToolFailed as error:
                for listener in self._listeners:
                    listener.on_problem(str(error))
                await self._clock.sleep(max(self._not_before - self._clock.monotonic_ms(), _MIN_RETRY_MS))

    async def _listen_loop(self, client: Client) -> None:
        """Receive changes of the subscribed resources and, in newer protocols, of the list of tools."""
        while True:
            self._listeners_changed = asyncio.Event()
            listeners = list(self._listeners)
            subscription = asyncio.get_running_loop().create_task(
                self._sdk.listen(client, sorted({listener.uri for listener in listeners}), self._notify)
            )
            other = asyncio.get_running_loop().create_task(self._listeners_changed.wait())
            waits: set[asyncio.Task[Any]] = {subscription, other}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                trouble = subscription.exception() if subscription.done() else None
                for listener in listeners if subscription.done() else ():
                    listener.on_problem(
                        f"the MCP server {self.name} does not report changes: {trouble or 'it stopped'}"
                    )
                if subscription.done():
                    # A stream may end only because it was silent for long.
                    again = asyncio.get_running_loop().create_task(self._clock.sleep(_MAX_RETRY_MS))
                    waits.add(again)
                    await asyncio.wait({other, again} if listeners else {other}, return_when=asyncio.FIRST_COMPLETED)
                    for listener in listeners:
                        listener.on_problem(None)
            finally:
                for task in waits:
                    task.cancel()

    def _notify(self, uri: str | None) -> None:
        """Notify the listeners that a resource changed; None stands for the list of tools."""
        if uri is None:
            self._stale = True
        for listener in self._listeners:
            # A server may name a part of the subscribed resource.
            if uri is not None and uri.startswith(listener.uri):
                listener.on_change()

    async def _run(self) -> None:
        self._wire = wire = Wire()
        failed: BaseException | None = None
        worked = False
        try:
            # The import takes two seconds; do not block the loop.
            self._sdk = await run_in_thread(importlib.import_module, "clew.tools.mcp.sdk")
            server = self.server
            folder = await run_in_thread(os.path.expanduser, server.cwd or str(self._workspace or "~"))
            filled = _expand(server.env if server.url is None else server.headers)
            async with (
                asyncio.timeout(server.start_s) as limit,
                self._sdk.connect(server, Path(folder), filled, wire, self._on_notification) as client,
            ):
                self.known = await self._list(client)
                limit.reschedule(None)
                self._client, self.state, self.error = client, "ready", None
                worked = True
                self._settled.set()
                listening = asyncio.get_running_loop().create_task(self._listen_loop(client))
                try:
                    await self._wait_for_end(wire)
                finally:
                    listening.cancel()
                    await asyncio.wait({listening})
        except Exception as error:
            failed = error
        finally:
            if failed is not None or wire.why is not None or not worked:
                self._record_failure(_reason(failed, wire, self.server), worked=worked)
            self._client = self._task = None
            self._settled.set()

    async def _wait_for_end(self, wire: Wire) -> None:
        """Wait until the connection is to stop or is lost."""
        waits = [asyncio.get_running_loop().create_task(one.wait()) for one in (self._stop, wire.closed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # No request is sent from now on: a new call waits for the end and starts the server again.
            self._client, self.state = None, "idle"
            self._stop.set()
            for one in waits:
                one.cancel()

    def _record_failure(self, why: str, *, worked: bool) -> None:
        self.state, self.error = "failed", why
        # A server that worked is restarted immediately the first time; one that never did must not delay every step.
        pause = 0 if worked and self._failures == 0 else min(_MIN_RETRY_MS * 2**self._failures, _MAX_RETRY_MS)
        self._failures += 1
        now = self._clock.monotonic_ms()
        self._not_before = now + pause + (0 if worked else 2 * (now - self._started_at))

    def _on_notification(self, notification: Any) -> None:
        if notification.method == "notifications/tools/list_changed":
            self._notify(None)
        elif notification.method == "notifications/resources/updated":
            self._notify(str(notification.params.uri))

    async def _list(self, client: Client) -> Definitions:
        listed = await self._sdk.list_tools(client)
        return await run_in_thread(read_definitions, self.name, listed)


async def _await_or_abandon(asked: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
    """Return the answer of a server; leave immediately when it is late or the caller is cancelled. The request is
    cancelled in the background: a server that hangs may not read the cancellation either."""
    asking = asyncio.get_running_loop().create_task(asked)
    try:
        await asyncio.wait({asking}, timeout=timeout_s)
        if not asking.done():
            raise TimeoutError
        return asking.result()
    finally:
        if not asking.done():
            asking.cancel()
            asking.add_done_callback(lambda left: left.cancelled() or left.exception())


def _expand(values: Mapping[str, str]) -> dict[str, str]:
    """Replace each ``${NAME}`` by its value in clew's own environment."""

    def find(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if value is None:
            raise ToolFailed(f"its config uses the variable {match[1]}, which is not set for clew")
        return value

    return {name: _VARIABLE.sub(find, value) for name, value in values.items()}


def _reason(error: BaseException | None, wire: Wire, server: McpServer) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it was not ready within {server.start_s:g} s"
    if isinstance(error, ModuleNotFoundError):
        return "MCP needs an extra; install it: pip install 'clew-sessions[mcp]'"
    if isinstance(error, ToolFailed):
        return str(error)
    return wire.why or (f"{type(error).__name__}: {error}" if error is not None else "it ended")
