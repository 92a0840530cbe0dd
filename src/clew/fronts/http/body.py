"""Bodies: bytes from outside to typed values, with a reason for every refusal.

Three answers, told apart on purpose: 400 for what is no JSON object, 413 for what is too large to look at, 422 for
what was read and cannot be taken. A strict parser does the work; only what it refuses is read once more by a lenient
one, to tell a number no store can keep (``unsupported_value``) from bytes that are no JSON. Large bodies are looked
at in a thread: whoever sends one waits for it, nobody else does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from clew.errors import InvalidInput, UnsupportedValue
from clew.fronts.http.problem import BadRequest, BodyTooLarge
from clew.transcript.gate import check_value

__all__ = ["MAX_BODY", "MAX_CHAT_BODY", "MAX_PARTS", "Nothing", "parse", "parse_raw", "read", "read_bytes"]

MAX_BODY: Final = 32 * 1024 * 1024
MAX_CHAT_BODY: Final = 64 * 1024 * 1024
"""A chat client sends its whole history with each message, files by value included."""

MAX_PARTS: Final = 1_000
"""Of one prompt. Each becomes a row."""

_LARGE: Final = 256 * 1024
T = TypeVar("T")


class Nothing(msgspec.Struct):
    """A body that says nothing."""


async def read(
    request: Request,
    type_: type[T],
    *,
    limit: int = MAX_BODY,
    parser: Callable[[bytes, type[T]], T] | None = None,
    optional: bool = False,
) -> T:
    """The body of a request as ``type_``; by :func:`parse` unless said otherwise.

    ``optional``: no body at all is an empty object.
    """
    data = await read_bytes(request, limit) or (b"{}" if optional else b"")
    reader = parser or parse
    return reader(data, type_) if len(data) < _LARGE else await asyncio.to_thread(reader, data, type_)


async def read_bytes(request: Request, limit: int) -> bytes:
    """The whole body, unless it is larger than ``limit``; then no more of it is read than that."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise BodyTooLarge(f"a body may have at most {limit} bytes", limit=limit)
    pieces: list[bytes] = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(f"a body may have at most {limit} bytes", limit=limit)
        pieces.append(piece)
    return b"".join(pieces)


def parse(data: bytes, type_: type[T]) -> T:
    """The body as ``type_``; every value in it is one that stores can keep."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _lenient(data)
    _check(value)
    return _convert(value, type_)


def parse_raw(data: bytes, type_: type[T]) -> T:
    """As :func:`parse`, for a type with ``msgspec.Raw`` in it: what is raw was looked at as JSON and no closer."""
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    value = _lenient(data)
    _check(value)
    _convert(value, type_)
    raise BadRequest("the body is not JSON")


def _lenient(data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise UnsupportedValue("the body is nested too deeply") from error
    except ValueError as error:
        raise UnsupportedValue(f"the body holds a number that cannot be kept: {error}") from error


def _check(value: Any) -> None:
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    check_value(value, "the body", max_bytes=MAX_CHAT_BODY)


def _convert(value: Any, type_: type[T]) -> T:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the body does not fit: {error}") from error
