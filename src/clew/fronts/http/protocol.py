"""The wire: uvicorn's HTTP/1.1, with an end to how large and how late a request may be.

Nobody has shown a token yet when a head comes in, so what it may cost is bounded before anything is looked at. A
connection that waits for its next request, that goes on sending a body after its answer, or that takes nothing of an
answer without ever having shown a token, is not waited for either. Bodies have limits of their own, in
:mod:`clew.fronts.http.request_body`. What is no HTTP at all is answered as every other mistake is, with a problem.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import secrets
import sys
import termios
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from clew.config import ServerConfig
from clew.fronts.http.acceptor import Acceptor
from clew.fronts.http.auth import KNOWN
from clew.fronts.http.problem import BadRequest, raw_problem

__all__ = ["MAX_HEAD", "BoundedProtocol"]

MAX_HEAD: Final = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, config: uvicorn.Config, state: ServerState, limits: ServerConfig, acceptor: Acceptor) -> None:
        super().__init__(config, state, {})
        self._limits = limits
        self._acceptor = acceptor
        self._stranger = True
        self._begun = False
        self._in_head = True
        self._heads = 0
        self._size = 0
        self._late: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._left = 0

    def cut(self) -> None:
        """End it now, whatever it is doing."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent has it
        super().connection_made(_HeadJoined(transport, self.loop))
        self._expect(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect(None)
        self._stop_unread()
        self._acceptor.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was, heads = self._in_head, self._heads
        super().data_received(data)
        # A whole request may come in one piece: it is in a head before and after, and most of the piece was its body.
        if was and self._in_head and heads == self._heads and not self.transport.is_closing():
            self._size += len(data)
            if self._size > MAX_HEAD:
                self.send_400_response("the head of this request is too large")

    def send_400_response(self, msg: str) -> None:
        named = (b"x-request-id", secrets.token_hex(8).encode())
        self.transport.write(raw_problem(BadRequest(msg), (b"connection", b"close"), named))
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[KNOWN] = self._on_known  # type: ignore[typeddict-unknown-key]  # ours
        self._begun = self._in_head = True
        self._size = 0
        self._expect(self._limits.head_s)

    def on_headers_complete(self) -> None:
        self._begun = self._in_head = False
        self._heads += 1
        self._expect(None)
        self._acceptor.ask(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._size = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self._acceptor.answered(self)
        # A head that has begun has its own end; a request that was sent ahead is being answered now.
        if not self._begun and self.cycle.response_complete and not self.transport.is_closing():
            self._expect(self._limits.idle_s)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stranger and self._unread is None:
            self._wait_unread()

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def _on_known(self) -> None:
        self._stranger = False
        self._stop_unread()
        self._acceptor.know(self)

    def _expect(self, seconds: float | None) -> None:
        """Something has to come within so many seconds; None: nothing more is waited for."""
        if self._late is not None:
            self._late.cancel()
        self._late = None
        if seconds is not None:
            self._late = self.loop.call_later(seconds, self._on_late, seconds)
            self._left = self._count_left()

    def _on_late(self, seconds: float) -> None:
        # It may have come, where this side does not read just now; and who still takes the last answer is not idle.
        if self.flow.read_paused or self._is_taking():
            self._expect(seconds)
        else:
            self.cut()

    def _is_taking(self) -> bool:
        """Whether something of an answer is on its way. A stranger has to have taken some of it since the last look."""
        if self.transport.get_write_buffer_size() == 0:
            return False
        return not self._stranger or self._count_left() < self._left

    def _count_left(self) -> int:
        """Bytes that the peer has not taken yet. The system has megabytes of them, and says when there is room late."""
        left = self.transport.get_write_buffer_size()
        with contextlib.suppress(OSError, ValueError, AttributeError):
            fd = self.transport.get_extra_info("socket").fileno()
            left += int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return left

    def _wait_unread(self) -> None:
        self._left = self._count_left()
        self._unread = self.loop.call_later(self._limits.head_s, self._on_unread)

    def _on_unread(self) -> None:
        if self._is_taking():
            self._wait_unread()
        else:
            self.cut()

    def _stop_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class _HeadJoined(asyncio.Transport):
    """A transport on which the head of an answer goes along with what is sent right behind it, by one call of the
    system instead of two; by itself, where nothing is."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._to = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._head:
            data, self._head = self._head + data, b""
        elif bytes(data[:5]) == b"HTTP/":
            self._head = bytes(data)
            self._loop.call_soon(self._flush)
            return
        self._to.write(data)

    def _flush(self) -> None:
        if self._head:
            head, self._head = self._head, b""
            self._to.write(head)

    def close(self) -> None:
        self._flush()
        self._to.close()

    def abort(self) -> None:
        self._head = b""
        self._to.abort()

    def get_write_buffer_size(self) -> int:
        return len(self._head) + self._to.get_write_buffer_size()

    def is_closing(self) -> bool:
        return self._to.is_closing()

    def get_extra_info(self, name: str, default: object = None) -> Any:
        return self._to.get_extra_info(name, default)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._to.get_protocol()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._to.set_protocol(protocol)

    def pause_reading(self) -> None:
        self._to.pause_reading()

    def resume_reading(self) -> None:
        self._to.resume_reading()
