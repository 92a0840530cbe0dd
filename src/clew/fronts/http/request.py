"""Requests: bodies and query parameters from outside to typed values, with a reason for every refusal.

Three statuses: 400 for a body that is not a JSON object, 413 for one that is too large, 422 for one that was parsed but
is not valid. A strict parser does the work; what it refuses is parsed again by a lenient one, to distinguish a number
that stores cannot hold (``unsupported_value``) from malformed JSON. Large bodies are parsed in a thread, so that only
their sender waits. The duration of a body, and the memory of all incomplete bodies, are limited, so that slow senders
cannot fill the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect
from starlette.requests import Request

from clew.config import ServerConfig
from clew.convert import convert, convert_json, explain_type_error
from clew.errors import InvalidInput, UnsupportedValue
from clew.fronts.http.acceptor import SETTLED_S
from clew.fronts.http.auth import STRANGER
from clew.fronts.http.problem import BadRequest, BodyTooLarge, BodyTooSlow, ServerBusy
from clew.transcript.metadata import check_metadata_size
from clew.transcript.value_check import check_value

__all__ = ["MAX_BODY", "MAX_CHAT_BODY", "Bodies", "parse", "parse_raw", "read_body", "read_bytes", "read_query"]

_RAW_VALUES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
MAX_BODY: Final = 32 * 1024 * 1024
MAX_CHAT_BODY: Final = 64 * 1024 * 1024
"""A chat client sends its whole history with each message, including inline files."""

STRANGER_GRACE_S: Final = 5.0
"""Time after which the body of an unauthenticated request must have a minimum rate."""

KNOWN_GRACE_FACTOR: Final = 6
"""Multiplies this time for authenticated requests: a link may stall for a while."""

_LARGE_BYTES: Final = 256 * 1024
T = TypeVar("T")


async def read_body(
    request: Request,
    type_: type[T],
    *,
    limit: int = MAX_BODY,
    parser: Callable[[bytes, type[T]], T] | None = None,
    optional: bool = False,
) -> T:
    """Return the body of a request as ``type_``, parsed by :func:`parse` by default.

    ``optional``: an empty body counts as an empty object.
    """
    data = await read_bytes(request, limit) or (b"{}" if optional else b"")
    reader = parser or parse
    return reader(data, type_) if len(data) < _LARGE_BYTES else await asyncio.to_thread(reader, data, type_)


async def read_bytes(request: Request, limit: int) -> bytes:
    """Return the whole body, unless it is larger than ``limit`` or too slow; then the rest is not read."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise BodyTooLarge(f"the body can have at most {limit} bytes", limit=limit)
    bodies: Bodies = request.app.state.bodies
    data = bytearray()
    with bodies.receiving(stranger=request.scope.get(STRANGER) is not False) as body:
        try:
            async with body.clock:
                async for piece in request.stream():
                    if body.size + len(piece) > limit:
                        raise BodyTooLarge(f"the body can have at most {limit} bytes", limit=limit)
                    bodies.grow(body, len(piece))
                    data += piece
        except TimeoutError:
            raise BodyTooSlow(body.timeout_detail) from None
    return bytes(data)


class _IncomingBody:
    """A body that is not complete yet."""

    def __init__(self, stranger: bool, limits: ServerConfig) -> None:
        self.stranger = stranger
        self.started_at = asyncio.get_running_loop().time()
        self.size = 0
        self._limits = limits
        self.clock = asyncio.timeout_at(self.end)
        self.timeout_detail = "the body did not arrive in time; send it again, faster"

    @property
    def end(self) -> float:
        """Return when the next data is due. With a token, a body may take as long as data keeps arriving."""
        limits, grace = self._limits, STRANGER_GRACE_S if self.stranger else STRANGER_GRACE_S * KNOWN_GRACE_FACTOR
        end = self.started_at + min(limits.body_s, grace) + self.size / limits.body_rate
        return min(end, self.started_at + limits.body_s) if self.stranger else end


class Bodies:
    """The incomplete bodies, and the memory they use together.

    One that misses its deadline is dropped. If there is no room for another one, or for more of one, the oldest of an
    unauthenticated request is dropped: an honest delivery takes a moment, and a body that is open for long is not being
    sent.
    """

    def __init__(self, limits: ServerConfig) -> None:
        self._limits = limits
        self._incoming: list[_IncomingBody] = []

    @property
    def held(self) -> int:
        """Return the number of bytes of incomplete bodies."""
        return sum(body.size for body in self._incoming)

    @contextlib.contextmanager
    def receiving(self, *, stranger: bool) -> Iterator[_IncomingBody]:
        """Track a body while it is being read."""
        limits = self._limits
        body = _IncomingBody(stranger, limits)
        while stranger and sum(one.stranger for one in self._incoming) >= limits.stranger_bodies:
            self._drop_oldest(body)
        self._incoming.append(body)
        try:
            yield body
        finally:
            if body in self._incoming:
                self._incoming.remove(body)

    def grow(self, body: _IncomingBody, size: int) -> None:
        """Count received bytes; raise :class:`ServerBusy` if there is no room for them."""
        limits = self._limits
        while body.stranger and size + self._stranger_bytes() > limits.stranger_body_bytes:
            self._drop_oldest(body)
        while size + self.held > limits.body_bytes:
            self._drop_oldest(body)
        body.size += size
        if body in self._incoming:
            body.clock.reschedule(body.end)

    def _stranger_bytes(self) -> int:
        return sum(body.size for body in self._incoming if body.stranger)

    def _drop_oldest(self, requester: _IncomingBody) -> None:
        newest = asyncio.get_running_loop().time() - SETTLED_S
        others = (one for one in self._incoming if one.stranger and one is not requester)
        oldest = next((one for one in others if one.started_at < newest), None)
        if oldest is None:
            raise ServerBusy("too many requests are being received; try again in a moment")
        oldest.timeout_detail = "the body arrived too slowly while others were waiting; send it again, faster"
        oldest.clock.reschedule(0)
        self._incoming.remove(oldest)


def parse(data: bytes, type_: type[T]) -> T:
    """Parse the body as ``type_``; every value in it is one that stores can hold."""
    if len(data) >= _LARGE_BYTES and "metadata" in getattr(type_, "__struct_fields__", ()):
        _check_raw_metadata(data)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _lenient(data)
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    check_value(value, "the body", max_bytes=MAX_CHAT_BODY)
    try:
        return convert(value, type_)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid body: {explain_type_error(error, type_)}") from error


def _check_raw_metadata(data: bytes) -> None:
    """Refuse metadata of megabytes by its length: parsing it into a million values would block every other thread."""
    with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
        size = len(bytes(_RAW_VALUES.decode(data).get("metadata", b"")))
        if size >= _LARGE_BYTES:
            check_metadata_size(size)


def parse_raw(data: bytes, type_: type[T]) -> T:
    """Parse like :func:`parse`, for a type with ``msgspec.Raw`` fields: raw values are checked only for being JSON."""
    with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
        return convert_json(data, type_)
    # Let the other parser explain why not.
    parse(data, type_)
    raise BadRequest("the body is not JSON")


def _lenient(data: bytes) -> Any:
    try:
        return json.loads(data.decode())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the body is not JSON: {error}") from error
    except RecursionError as error:
        raise UnsupportedValue("the body is nested too deeply") from error
    except ValueError as error:
        raise UnsupportedValue(f"the body contains a number that cannot be stored: {error}") from error


_NUMBER: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
StructT = TypeVar("StructT", bound=msgspec.Struct)


def read_query(request: Request, type_: type[StructT]) -> StructT:
    """Parse the query as ``type_``. Unknown parameters are ignored; an empty one counts as absent."""
    values: dict[str, Any] = {}
    for name, kinds in _kinds(type_).items():
        text = request.query_params.get(name)
        if not text:
            continue
        values[name] = text
        if inspect.IntType in kinds:
            if not _NUMBER.fullmatch(text):
                raise InvalidInput(f"{name} must be a number")
            values[name] = int(text)
        elif inspect.BoolType in kinds:
            if text not in _FLAGS:
                raise InvalidInput(f"{name} must be true or false")
            values[name] = _FLAGS[text]
    check_value(values, "the query")
    try:
        return convert(values, type_)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid query: {explain_type_error(error, type_)}") from error


@functools.cache
def _kinds(type_: type[msgspec.Struct]) -> dict[str, set[type[inspect.Type]]]:
    """Return the possible types of each parameter, by name."""
    infos = {field.encode_name: inspect.type_info(field.type) for field in msgspec.structs.fields(type_)}
    return {
        name: {type(one) for one in (info.types if isinstance(info, inspect.UnionType) else (info,))}
        for name, info in infos.items()
    }
