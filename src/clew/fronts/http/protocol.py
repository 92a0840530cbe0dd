"""The wire: uvicorn's HTTP/1.1, with an end to how large and how late the head of a request may be.

Nobody has shown a token yet when a head comes in, so what it may cost is bounded before anything is looked at. What is
no HTTP at all is answered as every other mistake is, with a problem.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from clew.fronts.http.problem import BadRequest, problem

__all__ = ["HEAD_S", "MAX_HEAD", "BoundedProtocol"]

MAX_HEAD: Final = 64 * 1024
HEAD_S: Final = 30.0


class BoundedProtocol(HttpToolsProtocol):
    """One connection."""

    _in_head = True
    _heads = 0
    _size = 0
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as its parent has it
        super().connection_made(transport)
        self._begin()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
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
        answer = problem(BadRequest(msg))
        headers = [*answer.raw_headers, (b"connection", b"close"), (b"x-request-id", secrets.token_hex(8).encode())]
        lines = [b"HTTP/1.1 400 Bad Request", *(b"%b: %b" % header for header in headers), b"", bytes(answer.body)]
        self.transport.write(b"\r\n".join(lines))
        self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._heads += 1
        self._stop()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._in_head, self._size = True, 0
        super().on_message_complete()

    def _begin(self) -> None:
        self._stop()
        self._in_head, self._size = True, 0
        self._late = asyncio.get_running_loop().call_later(HEAD_S, self.transport.abort)

    def _stop(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
