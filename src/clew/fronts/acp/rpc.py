"""JSON-RPC 2.0 with one message per line, in both directions; malformed messages are answered with an error.

The SDK's own connection is not used: it ignores a line that is not JSON, ends at one that is too long, and sends the
text of any exception to the peer. Each request runs in a task of its own; messages leave in the order they were sent.

stdin and stdout of the process are reserved for the connection: from then on prints go to stderr, and stdin is empty
for other code and for child processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import re
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import msgspec

from clew.convert import convert_json
from clew.errors import ClewError, Invalid, NotFound
from clew.tools.thread import run_in_thread

__all__ = ["Answer", "Closed", "Connection", "Refused", "own_stdio"]

log = logging.getLogger("clew.acp")

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
NO_METHOD: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL: Final = -32603
CANCELLED: Final = -32800
NOT_FOUND: Final = -32002
_CANCEL: Final = "$/cancel_request"
_MAX_BUFFERED: Final = 1 << 20
"""A sender waits while the peer has more unread bytes than this."""
_GRACE_S: Final = 1.0
MAX_LINE_BYTES: Final = 64 << 20
# Bytes stored of each end of a line over the limit: enough to find the id of its message.
_END_BYTES: Final = 1024
_ID: Final = rb'"id"\s*:\s*(-?\d{1,18}|"(?:[^"\\]|\\.){0,200}")'
# Keys with short values. A key after a long value could be a part of that value.
_SHORT_KEYS: Final = rb'(?:"(?:jsonrpc|method)"\s*:\s*"[^"\\]{0,200}"\s*,\s*)*'
_ID_FIRST: Final = re.compile(
    rb"\s*\{\s*" + _SHORT_KEYS + _ID + rb"\s*,\s*" + _SHORT_KEYS + rb'"(?:params|result|error)"'
)
# Many implementations write the id last.
_ANSWER: Final = re.compile(
    rb"\s*\{\s*" + _SHORT_KEYS + rb"(?:" + _ID + rb"\s*,\s*)?" + _SHORT_KEYS + rb'"(?:result|error)"'
)
# A key right before the last brace is one of the message itself.
_ID_LAST: Final = re.compile(rb"[\]}\d\"el]\s*,\s*" + _ID + rb'\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*\Z')

Read: TypeAlias = Callable[[], Awaitable[bytes]]
Write: TypeAlias = Callable[[bytes], Awaitable[None]]


class Refused(Exception):
    """An error response, received from the peer or to be sent to it."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class Closed(Exception):
    """The peer has closed the connection."""


class Answer:
    """A response, and a function to call once it was sent."""

    def __init__(self, result: Any, then: Callable[[], None]) -> None:
        self.result = result
        self.then = then


class LongLine:
    """A line over the limit, of which only both ends are stored."""

    def __init__(self) -> None:
        self._head = self._tail = b""

    def add(self, piece: bytes) -> None:
        self._head += piece[: _END_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-_END_BYTES:])[-_END_BYTES:]

    @property
    def id(self) -> int | str | None:
        """Return the id of the request or response; None if absent or unreadable."""
        found = _ID_FIRST.match(self._head) or _ID_LAST.search(self._tail)
        try:
            return None if found is None else convert_json(found[1], int | str)
        except msgspec.DecodeError:
            return None

    @property
    def is_answer(self) -> bool:
        """Return whether it is a response to a request of clew."""
        return _ANSWER.match(self._head) is not None


class Handler:
    """The requests and notifications that the peer can send, by method; ``on_peer_gone`` is called at its end."""

    def __init__(
        self,
        requests: Callable[[str], Callable[[Any], Awaitable[Any]] | None],
        notifications: Callable[[str], Callable[[Any], Awaitable[None]] | None],
        on_peer_gone: Callable[[], None] = lambda: None,
    ) -> None:
        self.requests = requests
        self.notifications = notifications
        self.on_peer_gone = on_peer_gone


class Connection:
    """A connection to one peer. ``read`` returns bytes as they arrive, none at the end; ``write`` sends them."""

    def __init__(self, read: Read, write: Write, handler: Handler, *, longest_line: int = MAX_LINE_BYTES) -> None:
        self._read = read
        self._write = write
        self._handler = handler
        self._longest = longest_line
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._next_id = 0
        self._running: dict[int | str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._out: list[bytes] = []
        self._out_size = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._broken = self._over = False
        self.closed = False
        """The peer has closed its end."""

    async def run(self) -> None:
        """Serve until the peer closes its end; when this returns, no request is running."""
        writing = asyncio.create_task(self._send_out())
        try:
            async for line in self._lines():
                if isinstance(line, LongLine):
                    self._take_long(line)
                elif line.strip():
                    self._take(line)
        finally:
            self.closed = True
            for future in self._asked.values():
                if not future.done():
                    future.set_exception(Closed("the connection is closed"))
            self._room.set()
            self._handler.on_peer_gone()
            tasks = [*self._tasks]
            if tasks:
                # A peer that sends a request and closes its end still gets answers that are ready soon.
                await asyncio.wait(tasks, timeout=_GRACE_S)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._over = True
            self._more.set()
            # A peer that no longer reads must not block the end.
            await asyncio.wait([writing], timeout=_GRACE_S)
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and return the result. If cancelled, so is the request. Raises Refused or Closed."""
        if self.closed:
            raise Closed("the connection is closed")
        self._next_id += 1
        id_ = self._next_id
        future = self._asked[id_] = asyncio.get_running_loop().create_future()
        await self._send({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
        try:
            return await future
        except asyncio.CancelledError:
            if not self.closed:
                self._put({"jsonrpc": "2.0", "method": _CANCEL, "params": {"requestId": id_}})
            raise
        finally:
            self._asked.pop(id_, None)

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification. It is dropped if the peer is gone."""
        await self._send({"jsonrpc": "2.0", "method": method, "params": params})

    # In

    async def _lines(self) -> Any:
        """Yield the lines as they arrive; a LongLine for one over the limit."""
        line: bytearray | LongLine = bytearray()
        while piece := await self._read():
            *whole, rest = piece.split(b"\n")
            for part in whole:
                line = self._longer(line, part)
                yield line if isinstance(line, LongLine) else bytes(line)
                line = bytearray()
            line = self._longer(line, rest)
        if isinstance(line, bytearray) and line:
            yield bytes(line)

    def _longer(self, line: bytearray | LongLine, part: bytes) -> bytearray | LongLine:
        if isinstance(line, bytearray) and len(line) + len(part) <= self._longest:
            line += part
            return line
        if isinstance(line, bytearray):
            begun, line = bytes(line), LongLine()
            line.add(begun)
        line.add(part)
        return line

    def _take_long(self, line: LongLine) -> None:
        why = f"a line has more than {self._longest:,} bytes"
        if line.is_answer:
            # The request that this responds to must not wait forever.
            self._take_answer(line.id, {"error": {"code": INVALID_REQUEST, "message": why}})
        else:
            self._refuse(line.id, Refused(INVALID_REQUEST, why))

    def _take(self, line: bytes) -> None:
        try:
            message = msgspec.json.decode(line)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            self._refuse(None, Refused(PARSE_ERROR, f"not JSON: {error}"))
            return
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self._refuse(None, Refused(INVALID_REQUEST, 'a message must be one object with "jsonrpc": "2.0"'))
            return
        id_, method = message.get("id"), message.get("method")
        if "method" not in message:
            self._take_answer(id_, message)
        elif not isinstance(method, str) or isinstance(id_, bool) or not isinstance(id_, int | str | None):
            self._refuse(None, Refused(INVALID_REQUEST, "method must be a string, and id an integer or a string"))
        elif "id" not in message:
            self._take_notification(method, message.get("params"))
        elif id_ is None or id_ in self._running:
            self._refuse(id_, Refused(INVALID_REQUEST, "id must not be null or that of a running request"))
        else:
            task = self._start(self._answer(id_, method, message.get("params")))
            self._running[id_] = task
            task.add_done_callback(functools.partial(self._ended, id_))

    def _take_answer(self, id_: Any, message: dict[str, Any]) -> None:
        future = self._asked.get(id_) if isinstance(id_, int) and not isinstance(id_, bool) else None
        if future is None or future.done():
            return
        if "result" in message:
            future.set_result(message["result"])
            return
        error = message.get("error")
        error = error if isinstance(error, dict) else {}
        code = error.get("code")
        future.set_exception(Refused(code if isinstance(code, int) else INTERNAL, str(error.get("message") or "error")))

    def _take_notification(self, method: str, params: Any) -> None:
        if method == _CANCEL:
            named = params.get("requestId") if isinstance(params, dict) else None
            running = self._running.get(named) if isinstance(named, int | str) else None
            if running is not None:
                running.cancel()
            return
        if (heard := self._handler.notifications(method)) is not None:
            self._start(self._hear(method, heard(params)))

    async def _hear(self, method: str, work: Awaitable[None]) -> None:
        try:
            await work
        except (Refused, ClewError) as error:
            log.warning("%s: %s", method, error)
        except Exception:
            log.exception("unexpected error in %s", method)

    async def _answer(self, id_: int | str, method: str, params: Any) -> None:
        try:
            asked = self._handler.requests(method)
            if asked is None:
                raise Refused(NO_METHOD, f"unknown method {method[:100]!r}")
            result = await asked(params)
        except Refused as error:
            self._refuse(id_, error)
        except ClewError as error:
            self._refuse(id_, refusal_of(error))
        except Closed:
            pass
        except Exception:
            # The text may contain anything, so it goes to the log only.
            log.exception("unexpected error in %s", method)
            self._refuse(id_, Refused(INTERNAL, "internal error; see clew's log on stderr"))
        else:
            answer = result if isinstance(result, Answer) else Answer(result, lambda: None)
            self._put({"jsonrpc": "2.0", "id": id_, "result": answer.result})
            answer.then()

    def _ended(self, id_: int | str, task: asyncio.Task[None]) -> None:
        self._running.pop(id_, None)
        # Not in `_answer`: a task cancelled immediately never starts.
        if task.cancelled():
            self._refuse(id_, Refused(CANCELLED, "the request was cancelled"))

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Out

    def _refuse(self, id_: int | str | None, error: Refused) -> None:
        shown = {"code": error.code, "message": error.message}
        if error.data is not None:
            shown["data"] = error.data
        self._put({"jsonrpc": "2.0", "id": id_, "error": shown})

    async def _send(self, message: dict[str, Any]) -> None:
        self._put(message)
        await self._room.wait()

    def _put(self, message: dict[str, Any]) -> None:
        if self._broken:
            return
        line = msgspec.json.encode(message) + b"\n"
        self._out.append(line)
        self._out_size += len(line)
        if self._out_size > _MAX_BUFFERED and not self.closed:
            self._room.clear()
        self._more.set()

    async def _send_out(self) -> None:
        """Write queued messages in order until the connection ends."""
        try:
            while self._out or not self._over:
                await self._more.wait()
                self._more.clear()
                lines, self._out, self._out_size = self._out, [], 0
                self._room.set()
                if lines:
                    await self._write(b"".join(lines))
        except OSError as error:
            log.info("the peer takes no more messages: %s", error)
            self._broken, self._out = True, []
            self._room.set()


def refusal_of(error: ClewError) -> Refused:
    """Return a ClewError as an error response, with its message and its stable code."""
    code = NOT_FOUND if isinstance(error, NotFound) else INVALID_PARAMS if isinstance(error, Invalid) else INTERNAL
    ids = {name: value for name, value in error.ids.items() if isinstance(value, str | int)}
    return Refused(code, str(error), {"code": error.code, **ids})


_PIECE = 1 << 16


def own_stdio() -> tuple[Read, Write]:
    """Return the read and write functions. The descriptors are not restored: prints at interpreter exit are no messages
    either."""
    loop = asyncio.get_running_loop()
    given, out = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(64)

    def pump() -> None:
        # A daemon thread: an event loop cannot wait for a file or terminal, and a read cannot be cancelled.
        piece = b"-"
        while piece:
            room.acquire()
            try:
                piece = os.read(given, _PIECE)
            except OSError:
                piece = b""
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(pieces.put_nowait, piece)

    threading.Thread(target=pump, daemon=True, name="clew-acp-stdin").start()

    async def read() -> bytes:
        piece = await pieces.get()
        room.release()
        return piece

    def write_all(data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(out, view) :]

    async def write(data: bytes) -> None:
        # Not in the loop's executor, which is joined at the end: the peer may never read this.
        await run_in_thread(write_all, data)

    return read, write
