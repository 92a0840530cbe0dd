"""Bodies: bytes from outside to typed values, with a reason for every refusal.

Three answers, told apart on purpose: 400 for what is no JSON object, 413 for what is too large to look at, 422 for
what was read and cannot be taken. A strict parser does the work; only what it refuses is read once more by a lenient
one, to tell a number no store can keep (``unsupported_value``) from bytes that are no JSON. Large bodies are looked
at in a thread: whoever sends one waits for it, nobody else does. How long a body may take, and what all of them may
hold before they are whole, has an end, so that nobody can fill the server by sending slowly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from clew.config import ServerConfig
from clew.errors import InvalidInput, UnsupportedValue
from clew.fit import fit, fit_json
from clew.fronts.http.acceptor import SETTLED_S
from clew.fronts.http.auth import STRANGER
from clew.fronts.http.problem import BadRequest, BodyTooLarge, BodyTooSlow, ServerBusy
from clew.misfit import misfit
from clew.transcript.gate import check_value
from clew.transcript.metadata import check_metadata_size

__all__ = ["MAX_BODY", "MAX_CHAT_BODY", "Bodies", "parse", "parse_raw", "read_body", "read_bytes"]

_RAW_VALUES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
MAX_BODY: Final = 32 * 1024 * 1024
MAX_CHAT_BODY: Final = 64 * 1024 * 1024
"""A chat client sends its whole history with each message, files by value included."""

RATE_FROM_S: Final = 5.0
"""How long a stranger's body may take before it is asked how fast it comes."""

KNOWN_RATE_FROM: Final = 6
"""How many times as long it is for whoever has shown the token: a link may stand still for a while."""

_LARGE: Final = 256 * 1024
T = TypeVar("T")


async def read_body(
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
    """The whole body, unless it is larger than ``limit`` or too slow; then no more of it is read than that."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise BodyTooLarge(f"a body may have at most {limit} bytes", limit=limit)
    bodies: Bodies = request.app.state.bodies
    data = bytearray()
    with bodies.receiving(stranger=request.scope.get(STRANGER) is not False) as body:
        try:
            async with body.clock:
                async for piece in request.stream():
                    if body.size + len(piece) > limit:
                        raise BodyTooLarge(f"a body may have at most {limit} bytes", limit=limit)
                    bodies.grow(body, len(piece))
                    data += piece
        except TimeoutError:
            raise BodyTooSlow(body.late) from None
    return bytes(data)


class _IncomingBody:
    """A body that is not all there yet."""

    def __init__(self, stranger: bool, limits: ServerConfig) -> None:
        self.stranger = stranger
        self.began = asyncio.get_running_loop().time()
        self.size = 0
        self._limits = limits
        self.clock = asyncio.timeout_at(self.end)
        self.late = "the body did not come in time; send it again, faster"

    @property
    def end(self) -> float:
        """Until when the next of it has to come. Whoever has the token may go on for as long as it keeps coming."""
        limits, grace = self._limits, RATE_FROM_S if self.stranger else RATE_FROM_S * KNOWN_RATE_FROM
        end = self.began + min(limits.body_s, grace) + self.size / limits.body_rate
        return min(end, self.began + limits.body_s) if self.stranger else end


class Bodies:
    """The bodies that are coming in, and what they hold together.

    One that is late is cut off. Where there is no room for one more, or for more of one, the oldest of a stranger
    makes room: an honest delivery is there in a moment, and who holds a place for long is not sending.
    """

    def __init__(self, limits: ServerConfig) -> None:
        self._limits = limits
        self._incoming: list[_IncomingBody] = []

    @property
    def held(self) -> int:
        """Bytes of bodies that are not all there."""
        return sum(body.size for body in self._incoming)

    @contextlib.contextmanager
    def receiving(self, *, stranger: bool) -> Iterator[_IncomingBody]:
        """For as long as a body is being read."""
        limits = self._limits
        body = _IncomingBody(stranger, limits)
        while stranger and sum(one.stranger for one in self._incoming) >= limits.stranger_bodies:
            self._make_room(body)
        self._incoming.append(body)
        try:
            yield body
        finally:
            if body in self._incoming:
                self._incoming.remove(body)

    def grow(self, body: _IncomingBody, size: int) -> None:
        """Count what came; :class:`ServerBusy` when there is no room for it."""
        limits = self._limits
        while body.stranger and size + self._held_by_strangers() > limits.stranger_body_bytes:
            self._make_room(body)
        while size + self.held > limits.body_bytes:
            self._make_room(body)
        body.size += size
        if body in self._incoming:
            body.clock.reschedule(body.end)

    def _held_by_strangers(self) -> int:
        return sum(body.size for body in self._incoming if body.stranger)

    def _make_room(self, asking: _IncomingBody) -> None:
        newest = asyncio.get_running_loop().time() - SETTLED_S
        others = (one for one in self._incoming if one.stranger and one is not asking)
        oldest = next((one for one in others if one.began < newest), None)
        if oldest is None:
            raise ServerBusy("too many requests are being sent at once; try again in a moment")
        oldest.late = "the body came too slowly, and others were waiting; send it again, faster"
        oldest.clock.reschedule(0)
        self._incoming.remove(oldest)


def parse(data: bytes, type_: type[T]) -> T:
    """The body as ``type_``; every value in it is one that stores can keep."""
    if len(data) >= _LARGE and "metadata" in getattr(type_, "__struct_fields__", ()):
        _check_raw_metadata(data)
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        value = _lenient(data)
    if not isinstance(value, dict):
        raise BadRequest("the body must be a JSON object")
    check_value(value, "the body", max_bytes=MAX_CHAT_BODY)
    try:
        return fit(value, type_)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the body does not fit: {misfit(error, type_)}") from error


def _check_raw_metadata(data: bytes) -> None:
    """Refuse metadata of megabytes by its length: parsing it into a million values would block every other thread."""
    with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
        size = len(bytes(_RAW_VALUES.decode(data).get("metadata", b"")))
        if size >= _LARGE:
            check_metadata_size(size)


def parse_raw(data: bytes, type_: type[T]) -> T:
    """As :func:`parse`, for a type with ``msgspec.Raw`` in it: what is raw was looked at as JSON and no closer."""
    with contextlib.suppress(msgspec.MsgspecError, ValueError, RecursionError):
        return fit_json(data, type_)
    # Why not, in the words of the other.
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
        raise UnsupportedValue(f"the body holds a number that cannot be kept: {error}") from error
