"""Answers: values as JSON responses, in the shapes the API promises."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from clew.long_work import let_go, run_long
from clew.transcript.message import Message

__all__ = ["HEADERS", "InPieces", "answer", "answer_messages", "encoded", "nothing"]

_FEW: Final = 200
HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_PIECE: Final = 64 * 1024
_encode = msgspec.json.Encoder().encode


class InPieces(Response):
    """As a client takes it: who does not read it must not make the server hold it, and to hand over much at once would
    keep everybody waiting."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        size = len(self.body)
        for at in range(0, max(size, 1), _PIECE):
            piece = bytes(self.body[at : at + _PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": at + _PIECE < size})


def answer(value: Any, status: int = 200) -> Response:
    """The value as JSON."""
    return encoded(_encode(value), status)


def encoded(body: bytes, status: int = 200) -> Response:
    """The same of what is JSON already."""
    return Response(body, status, HEADERS, media_type="application/json")


async def answer_messages(messages: Sequence[Message]) -> Response:
    """A list of messages as JSON; of a long one message by message, beside the loop: one call for all of it would keep
    everybody waiting."""
    if len(messages) <= _FEW:
        return answer({"messages": messages})
    body = await run_long(_write, messages)
    let_go(messages)
    return InPieces(body, 200, HEADERS, media_type="application/json")


def _write(messages: Sequence[Message]) -> bytes:
    file = io.BytesIO()
    for n, message in enumerate(messages):
        file.write((b"," if n else b'{"messages":[') + _encode(message))
    file.write(b"]}")
    return file.getvalue()


def nothing() -> Response:
    """Done, and nothing to say about it."""
    return Response(None, 204, HEADERS)
