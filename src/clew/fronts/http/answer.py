"""JSON responses in the shapes of the API."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from clew.long_work import let_go, run_long
from clew.transcript.message import Message

__all__ = ["HEADERS", "PiecewiseResponse", "answer", "answer_messages", "json_response", "no_content"]

_MAX_INLINE_MESSAGES: Final = 200
HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_PIECE_BYTES: Final = 64 * 1024
_encode = msgspec.json.Encoder().encode


class PiecewiseResponse(Response):
    """A response sent in pieces, as fast as the client reads: a slow client does not keep the whole body in the send
    buffer, and a large body does not block other requests.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        size = len(self.body)
        for start in range(0, max(size, 1), _PIECE_BYTES):
            piece = bytes(self.body[start : start + _PIECE_BYTES])
            await send({"type": "http.response.body", "body": piece, "more_body": start + _PIECE_BYTES < size})


def answer(value: Any, status: int = 200) -> Response:
    """Return the value as JSON."""
    return json_response(_encode(value), status)


def json_response(body: bytes, status: int = 200) -> Response:
    """Return a body that is already JSON."""
    return Response(body, status, HEADERS, media_type="application/json")


async def answer_messages(messages: Sequence[Message]) -> Response:
    """Return a list of messages as JSON. Long lists are encoded in a thread, to keep the event loop free."""
    if len(messages) <= _MAX_INLINE_MESSAGES:
        return answer({"messages": messages})
    body = await run_long(_encode_messages, messages)
    let_go(messages)
    return PiecewiseResponse(body, 200, HEADERS, media_type="application/json")


def _encode_messages(messages: Sequence[Message]) -> bytes:
    file = io.BytesIO()
    for n, message in enumerate(messages):
        file.write((b"," if n else b'{"messages":[') + _encode(message))
    file.write(b"]}")
    return file.getvalue()


def no_content() -> Response:
    """Return an empty success response."""
    return Response(None, 204, HEADERS)
