"""The wire protocol: uvicorn's HTTP/1.1, with limits on the size and the duration of requests.

A request head arrives before any token, so its size and duration are limited before it is parsed. A connection is also
closed when it stays idle, keeps sending a body after its response, or never reads its response without having sent a
valid token. Bodies have their own limits, in :mod:`clew.fronts.http.request_body`. Malformed HTTP is answered with a
problem document, like every other error.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import sys
from typing import Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from clew.config import ServerConfig
from clew.fronts.http.acceptor import Acceptor
from clew.fronts.http.auth import KNOWN
from clew.fronts.http.problem import BadRequest, raw_problem

if sys.platform != "win32":
    import fcntl
    import termios

__all__ = ["MAX_HEAD", "BoundedProtocol"]

MAX_HEAD: Final = 64 * 1024


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    def __init__(self, config: uvicorn.Config, state: ServerState, limits: ServerConfig, acceptor: Acceptor) -> None:
        super().__init__(config, state, {})
        self._limits = limits
        self._acceptor = acceptor
        self._stranger = True
        self._head_started = False
        self._in_head = True
        self._heads = 0
        self._size = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._unsent = 0

    def cut(self) -> None:
        """Close the connection immediately."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent has it
        super().connection_made(transport)
        self._set_deadline(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._set_deadline(None)
        self._stop_unread()
        self._acceptor.closed(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        was_in_head, heads = self._in_head, self._heads
        super().data_received(data)
        # A whole request may arrive in one chunk: the parser is in a head before and after, and most of the chunk was
        # the body.
        if was_in_head and self._in_head and heads == self._heads and not self.transport.is_closing():
            self._size += len(data)
            if self._size > MAX_HEAD:
                self.send_400_response("the request head is too large")

    def send_400_response(self, msg: str) -> None:
        request_id = (b"x-request-id", secrets.token_hex(8).encode())
        self.transport.write(raw_problem(BadRequest(msg), (b"connection", b"close"), request_id))
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope[KNOWN] = self._on_known  # type: ignore[typeddict-unknown-key]  # ours
        self._head_started = self._in_head = True
        self._size = 0
        self._set_deadline(self._limits.head_s)

    def on_headers_complete(self) -> None:
        self._head_started = self._in_head = False
        self._heads += 1
        self._set_deadline(None)
        self._acceptor.request_started(self)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._size = True, 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete:
            self._acceptor.request_finished(self)
        # A head in progress has its own deadline; a pipelined request is being answered now.
        if not self._head_started and self.cycle.response_complete and not self.transport.is_closing():
            self._set_deadline(self._limits.idle_s)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._stranger and self._unread_timer is None:
            self._watch_unread()

    def resume_writing(self) -> None:
        self._stop_unread()
        super().resume_writing()

    def _on_known(self) -> None:
        self._stranger = False
        self._stop_unread()
        self._acceptor.authenticated(self)

    def _set_deadline(self, seconds: float | None) -> None:
        """Close the connection unless progress is made within this many seconds; None: no deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None
        if seconds is not None:
            self._deadline = self.loop.call_later(seconds, self._on_deadline, seconds)
            self._unsent = self._count_unsent() if self._stranger else 0

    def _on_deadline(self, seconds: float) -> None:
        # The data may have arrived while reading is paused, and a client still reading the last response is not idle.
        if self.flow.read_paused or self._is_reading():
            self._set_deadline(seconds)
        else:
            self.cut()

    def _is_reading(self) -> bool:
        """Return whether the client is reading a response; without a token, whether it read since the last check."""
        if self.transport.get_write_buffer_size() == 0:
            return False
        return not self._stranger or self._count_unsent() < self._unsent

    def _count_unsent(self) -> int:
        """Return the number of bytes the peer has not received yet, including the kernel's send buffer of megabytes.

        Only this shows that a visitor without a token reads a file of the page, but slowly.
        """
        unsent = self.transport.get_write_buffer_size()
        if sys.platform != "win32":
            with contextlib.suppress(OSError, ValueError, AttributeError):
                fd = self.transport.get_extra_info("socket").fileno()
                unsent += int.from_bytes(fcntl.ioctl(fd, termios.TIOCOUTQ, bytes(4)), sys.byteorder)
        return unsent

    def _watch_unread(self) -> None:
        self._unsent = self._count_unsent()
        self._unread_timer = self.loop.call_later(self._limits.head_s, self._on_unread)

    def _on_unread(self) -> None:
        if self._is_reading():
            self._watch_unread()
        else:
            self.cut()

    def _stop_unread(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None
