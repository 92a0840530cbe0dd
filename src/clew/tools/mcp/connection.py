"""One connection to a server: begun when it is needed, ended when it is not, begun again after a while when it broke.

Whatever a server does is an error for whoever asked it, and for nobody else. The connection lives in a task of its own,
which is where the SDK wants it to begin and to end.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from clew.clock import Clock, Timer
from clew.errors import ToolFailed
from clew.mcp_server import McpServer
from clew.tools.mcp.definitions import Definitions, read_definitions
from clew.tools.mcp.wire import Wire
from clew.tools.thread import run_in_thread

if TYPE_CHECKING:
    from mcp import Client

__all__ = ["IDLE_MS", "Connection", "Listener"]

IDLE_MS: Final = 30 * 60 * 1000
_PAUSE_MS: Final = 1_000
_LONGEST_PAUSE_MS: Final = 60_000
_ENDING_S: Final = 5.0
_PROBE_S: Final = 5.0
_MAX_OVERDUE: Final = 2
"""Calls in a row that may run out of time before a server that answers other requests is started again."""
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", re.ASCII)

T = TypeVar("T")
Report = Callable[[Any], None]


class Listener:
    """Who wants to hear of one resource."""

    def __init__(
        self,
        uri: str,
        heard: Callable[[], None],
        told: Callable[[str | None], None],
        leave: Callable[[Listener], None],
    ) -> None:
        self.uri, self.heard, self.told, self._leave = uri, heard, told, leave

    def close(self) -> None:
        self._leave(self)


class Connection:
    """To one server, for one workspace of one owner. All methods are for the event loop's thread."""

    def __init__(self, name: str, server: McpServer, workspace: Path | None, clock: Clock) -> None:
        self.name, self.server = name, server
        self._workspace, self._clock = workspace, clock
        self.state: Literal["idle", "starting", "ready", "failed"] = "idle"
        self.error: str | None = None
        self.known: Definitions | None = None
        """What it said last, also while it does not run."""
        self.taken: Definitions | None = None
        """Those of them that a run was given last."""
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
        self._listeners: list[Listener] = []
        self._listens_to_others = asyncio.Event()
        self._keeping: asyncio.Task[None] | None = None
        self._breaks = 0
        self._not_before = self._began = 0.0
        self._idle: Timer | None = None

    @property
    def is_stale(self) -> bool:
        """It has said that its tools changed."""
        return self._stale

    @property
    def is_busy(self) -> bool:
        return self._busy > 0 or self.state == "starting" or bool(self._listeners)

    def begin(self) -> None:
        """See to it that it runs, or say why it cannot. Raises ``ToolFailed``."""
        if self._closed:
            raise ToolFailed(f"the MCP server {self.name} is not there any more")
        self._touch()
        if self._task is not None:
            return
        wait = self._not_before - self._clock.monotonic_ms()
        if wait > 0:
            raise ToolFailed(f"{self._failure()}; it is tried again in {max(1, round(wait / 1000))} s at the earliest")
        self._began = self._clock.monotonic_ms()
        self.state, self._settled, self._stop = "starting", asyncio.Event(), asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._live(), name=f"mcp-{self.name}")

    async def ready(self, *, anew: bool = False) -> Definitions:
        """Its definitions as they are now; ``anew``: asked for now, and whatever pause it was to have. Raises
        ``ToolFailed``."""
        if anew:
            self._stale, self._not_before = self._client is not None, 0.0
        if self._probing is not None:
            await asyncio.wait({self._probing})
        while self._task is not None and self._stop.is_set():
            await asyncio.wait({self._task})
        self.begin()
        await self._settled.wait()
        if self._client is None:
            raise ToolFailed(self._failure())
        # One asks, and whoever comes meanwhile waits: nobody goes by definitions that the server has taken back.
        async with self._listing:
            if self._stale and self._client is not None:
                await self._renew(self._client)
        if self.known is None:
            raise ToolFailed(self._failure())
        return self.known

    async def _end_if_hung(self) -> None:
        """End a server that left a call unanswered and does not list its tools; the next call starts it again, like one
        that broke. A server that does list them may only have a slow tool, unless several calls in a row time out."""
        try:
            if self._client is not None and (self._overdue < _MAX_OVERDUE or self._busy):
                await _unless_left(self._sdk.list_tools(self._client), min(_PROBE_S, self.server.timeout_s / 4))
                return
        except TimeoutError:
            pass
        except Exception:
            # An error is an answer; and what broke the connection has ended it.
            return
        await self._abandon("it does not answer")

    async def _abandon(self, why: str) -> None:
        """End the server without a closing request, which it would have to answer."""
        task = self._task
        self._overdue = 0
        self._wire.close(why)
        if task is not None:
            await asyncio.wait({task}, timeout=_ENDING_S)
            task.cancel()

    async def _renew(self, client: Client) -> None:
        self._stale = False
        try:
            self.known = await _unless_left(self._list(client), self.server.start_s)
        except TimeoutError:
            await self._abandon(f"it did not list its tools within {self.server.start_s:g} s")
            raise ToolFailed(self._failure()) from None
        except BaseException as error:
            self._stale = True
            if not isinstance(error, Exception):
                raise
            raise ToolFailed(f"the MCP server {self.name} says that its tools changed, not how: {error}") from error

    async def call(self, tool: str, args: Mapping[str, Any], report: Report, looked_at: Definitions) -> dict[str, Any]:
        """What the server answers, as JSON, if its definitions still are those that were looked at. Of a caller that is
        cancelled the server is told. Raises ``ToolFailed``."""
        if (await self.ready()).digest != looked_at.digest:
            raise ToolFailed(f"the MCP server {self.name} has just changed what its tools are; the call was not made")
        client, task = self._client, self._task
        if client is None or task is None:
            raise ToolFailed(self._failure())
        self._busy += 1
        asked = self._clock.monotonic_ms()
        try:
            answer: dict[str, Any] = await _unless_left(self._sdk.ask(client, tool, args, report))
        except asyncio.CancelledError:
            self._overdue += self._clock.monotonic_ms() - asked >= self.server.timeout_s * 1000
            if self._probing is None or self._probing.done():
                self._probing = asyncio.get_running_loop().create_task(self._end_if_hung())
            raise
        except self._sdk.Lost as lost:
            # How it ended is known once it is over.
            self._wire.close(str(lost.__cause__))
            await asyncio.wait({task}, timeout=_ENDING_S)
            raise ToolFailed(f"{self._failure()}; what the call did is unknown") from None
        finally:
            self._busy -= 1
            self._touch()
        self._breaks = self._overdue = 0
        return answer

    def listen(self, uri: str, heard: Callable[[], None], told: Callable[[str | None], None]) -> Listener:
        """Be told of the changes of a resource, for which this runs, and is begun again when it breaks."""
        listener = Listener(uri, heard, told, self._leave)
        self._listeners.append(listener)
        self._listens_to_others.set()
        if self._keeping is None:
            self._keeping = asyncio.get_running_loop().create_task(self._keep())
        return listener

    def _leave(self, listener: Listener) -> None:
        self._listeners = [one for one in self._listeners if one is not listener]
        self._listens_to_others.set()
        if not self._listeners and self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None

    async def close(self) -> None:
        """End it for good, with all that it started: a run that still has its tools does not begin it again."""
        self._closed = True
        for one in self._listeners:
            one.told(f"the MCP server {self.name} is not there any more")
        if self._keeping is not None:
            self._keeping.cancel()
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

    # Inside

    async def _keep(self) -> None:
        """Have it run for those who listen."""
        while True:
            try:
                await self.ready()
                for one in self._listeners:
                    one.told(None)
                if self._task is not None:
                    await asyncio.wait({self._task})
            except ToolFailed as error:
                for one in self._listeners:
                    one.told(str(error))
                await self._clock.sleep(max(self._not_before - self._clock.monotonic_ms(), _PAUSE_MS))

    async def _listen(self, client: Client) -> None:
        """Hear what those who listen want to hear, and in newer protocols that its tools changed."""
        while True:
            self._listens_to_others = asyncio.Event()
            listeners = list(self._listeners)
            hearing = asyncio.get_running_loop().create_task(
                self._sdk.listen(client, sorted({one.uri for one in listeners}), self._tell)
            )
            other = asyncio.get_running_loop().create_task(self._listens_to_others.wait())
            waits: set[asyncio.Task[Any]] = {hearing, other}
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                trouble = hearing.exception() if hearing.done() else None
                for one in listeners if hearing.done() else ():
                    one.told(f"the MCP server {self.name} does not tell of changes: {trouble or 'it stopped'}")
                if hearing.done():
                    # A stream over which nothing came for long may have ended by that alone.
                    again = asyncio.get_running_loop().create_task(self._clock.sleep(_LONGEST_PAUSE_MS))
                    waits.add(again)
                    await asyncio.wait({other, again} if listeners else {other}, return_when=asyncio.FIRST_COMPLETED)
                    for one in listeners:
                        one.told(None)
            finally:
                for task in waits:
                    task.cancel()

    def _tell(self, uri: str | None) -> None:
        """A resource has changed; None stands for the list of tools."""
        if uri is None:
            self._stale = True
        for one in self._listeners:
            # A server may name a part of what was asked for.
            if uri is not None and uri.startswith(one.uri):
                one.heard()

    async def _live(self) -> None:
        self._wire = wire = Wire()
        failed: BaseException | None = None
        worked = False
        try:
            # Two seconds of imports, which the loop does not wait for.
            self._sdk = await run_in_thread(importlib.import_module, "clew.tools.mcp.sdk")
            server = self.server
            folder = await run_in_thread(os.path.expanduser, server.cwd or str(self._workspace or "~"))
            filled = _filled(server.env if server.url is None else server.headers)
            async with (
                asyncio.timeout(server.start_s) as limit,
                self._sdk.connect(server, Path(folder), filled, wire, self._heard) as client,
            ):
                self.known = await self._list(client)
                limit.reschedule(None)
                self._client, self.state, self.error = client, "ready", None
                worked = True
                self._settled.set()
                listening = asyncio.get_running_loop().create_task(self._listen(client))
                try:
                    await self._until(wire)
                finally:
                    listening.cancel()
                    await asyncio.wait({listening})
        except Exception as error:
            failed = error
        finally:
            if failed is not None or wire.why is not None or not worked:
                self._broke(_reason(failed, wire, self.server), worked=worked)
            self._client = self._task = None
            self._settled.set()

    async def _until(self, wire: Wire) -> None:
        """As long as it is wanted, and there."""
        waits = [asyncio.get_running_loop().create_task(one.wait()) for one in (self._stop, wire.closed)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # From now on nobody asks it: a call that comes waits until it has ended, and begins it anew.
            self._client, self.state = None, "idle"
            self._stop.set()
            for one in waits:
                one.cancel()

    def _broke(self, why: str, *, worked: bool) -> None:
        self.state, self.error = "failed", why
        # One that worked is begun again at once the first time; one that never did must not hold up every step.
        pause = 0 if worked and self._breaks == 0 else min(_PAUSE_MS * 2**self._breaks, _LONGEST_PAUSE_MS)
        self._breaks += 1
        now = self._clock.monotonic_ms()
        self._not_before = now + pause + (0 if worked else 2 * (now - self._began))

    def _heard(self, notification: Any) -> None:
        if notification.method == "notifications/tools/list_changed":
            self._tell(None)
        elif notification.method == "notifications/resources/updated":
            self._tell(str(notification.params.uri))

    async def _list(self, client: Client) -> Definitions:
        listed = await self._sdk.list_tools(client)
        return await run_in_thread(read_definitions, self.name, listed)


async def _unless_left(asked: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
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


def _filled(values: Mapping[str, str]) -> dict[str, str]:
    """With what ``${NAME}`` stands for in clew's own environment."""

    def find(match: re.Match[str]) -> str:
        value = os.environ.get(match[1])
        if value is None:
            raise ToolFailed(f"its settings name the variable {match[1]}, which is not set where clew runs")
        return value

    return {name: _VARIABLE.sub(find, value) for name, value in values.items()}


def _reason(error: BaseException | None, wire: Wire, server: McpServer) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"it was not ready within {server.start_s:g} s"
    if isinstance(error, ModuleNotFoundError):
        return "MCP needs an extra; install it: pip install 'clew[mcp]'"
    if isinstance(error, ToolFailed):
        return str(error)
    return wire.why or (f"{type(error).__name__}: {error}" if error is not None else "it ended")
