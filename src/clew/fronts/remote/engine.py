"""The remote engine: the engine of a running server, with the names and values of an engine in this process.

A store has one owner. When that is a server, commands that write send their requests to it; code that uses an engine
need not know which kind it has. The methods are made from the table of operations: the facade's signature defines what
a call means, the table how it is sent. Methods composed of other operations are inherited; what exists only in the
owner's process, its store and its hooks, is not here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from clew.convert import convert_json
from clew.errors import MessageNotFound
from clew.fronts.operations import results as r
from clew.fronts.operations.conversion import restore
from clew.fronts.operations.table import BY_NAME, OPERATIONS, Operation
from clew.fronts.remote.wire import Gone, Wire, segment
from clew.ids import is_alias, is_message_id
from clew.live.base import Event
from clew.session.api import Operations
from clew.session.prompt.submission import Submission, TurnOutcome
from clew.store.base import Blob, Damage
from clew.transcript.session import Session
from clew.transcript.stream_cursor import StreamChunk
from clew.transcript.turn_state import OPEN
from clew.triggers.events import Events
from clew.triggers.schedules import Schedules
from clew.triggers.values.routing import Routing
from clew.triggers.webhooks import Webhooks

__all__ = ["RemoteEngine"]

_DONE_FRAME: Final = b"[DONE]"
_FOLDER_PARAMETERS: Final = ("workspace", "workspace_root")


def _make_remote(operation: Operation, method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method with the facade's signature that is carried out by the server."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    async def send(self: _Remote, *args: Any, **kwargs: Any) -> Any:
        arguments = _arguments(signature, self, args, kwargs)
        headers, answer = await self._wire.send(
            operation.method, *_request(operation, arguments), good=operation.answers
        )
        with self._wire.reading():
            return _restore(self, operation, arguments, headers, answer)

    @functools.wraps(method)
    async def watch(self: _Remote, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        path, _, query = _request(operation, _arguments(signature, self, args, kwargs))
        started = done = False
        async with contextlib.aclosing(self._wire.frames(path, query)) as frames:
            async for id_, frame in frames:
                started, done = True, frame == _DONE_FRAME
                if done:
                    continue
                with self._wire.reading():
                    if operation.streams is r.EventFrame:
                        # The first event is ``hello``; none after it is missed.
                        event = convert_json(frame, dict[str, Any])
                        value: Any = Event(event.pop("type"), event)
                    else:
                        # Return chunks unchanged, with unknown fields.
                        value = convert_json(frame, operation.streams)
                        value = StreamChunk(msgspec.json.decode(frame), id_) if operation.streams is r.Chunk else value
                yield value
        if operation.streams is r.Chunk and started and not done:
            raise Gone(f"the server at {self._wire.url} closed the connection in the middle of a stream")

    return watch if inspect.isasyncgenfunction(method) or (operation.answer is None and operation.streams) else send


class _Remote:
    """A class whose operations of one ``group`` are calls to the server."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def __init_subclass__(cls, group: str | None = None) -> None:
        for operation in OPERATIONS:
            for name in filter(None, (operation.name, operation.watched_by)):
                prefix, _, method_name = name.rpartition(".")
                if prefix == group and not operation.served:
                    setattr(cls, method_name, _make_remote(operation, getattr(cls, method_name)))


class RemoteEvents(_Remote, Events, group="events"):
    """The event ledger of a server."""


class RemoteSchedules(_Remote, Schedules, group="schedules"):
    """The schedules of a server."""


class RemoteWebhooks(_Remote, Webhooks, group="webhooks"):
    """The webhooks of a server. The secret is set only when it was just created."""


class RemoteSubmission(Submission):
    """A prompt that a server accepted. Its outcome is requested when it is awaited."""

    def __init__(self, engine: RemoteEngine, session_id: str, message_id: str, queued: bool) -> None:
        super().__init__(message_id, asyncio.get_running_loop().create_future(), queued=queued)
        self._engine = engine
        self._session_id = session_id

    async def wait(self) -> TurnOutcome:
        return await self._engine.outcome(self._session_id, self.message_id)


class RemoteEngine(_Remote, Operations, group=""):
    """The part of an engine that a server offers."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.url = wire.url
        self.events = RemoteEvents(self._wire)
        self.schedules = RemoteSchedules(self._wire)
        self.webhooks = RemoteWebhooks(self._wire)

    async def probe(self) -> None:
        """Raise if the server does not respond within a few seconds."""
        await self._wire.probe()

    async def examples(self) -> list[Session]:
        """Return the sample sessions; the server creates missing ones."""
        _, answered = await self._wire.send("POST", BY_NAME["examples"].path)
        return convert_json(answered, dict[str, list[Session]])["sessions"]

    async def losses(self) -> tuple[Damage, ...]:
        return (await self._server()).losses

    async def store_kind(self) -> str:
        return (await self._server()).store

    async def is_passing(self) -> bool:
        """Return whether the server belongs to a chat, and ends with it."""
        return not (await self._server()).triggers

    async def _server(self) -> r.ServerShape:
        _, answered = await self._wire.send("GET", BY_NAME["server"].path)
        return convert_json(answered, r.ServerShape)

    async def outcome(self, session_id: str, message_id: str) -> TurnOutcome:
        """Return how the newest turn of a message ends. Subscribes before the first check, so that no end is missed."""
        message_id = await self._stored_id(session_id, message_id)
        if is_alias(session_id):
            # Events name the session by its id, not by an alias.
            session_id = (await self.get_session(session_id)).id
        async with contextlib.aclosing(cast(AsyncGenerator[Event, None], self.subscribe())) as events:
            async for event in events:
                turn_id: str | None = None
                if str(event.type) == "hello":
                    turn_id = await self._newest_turn(session_id, message_id)
                    if turn_id is None and message_id not in {one.id for one in await self.queue(session_id)}:
                        # It may have left the queue between the two requests.
                        turn_id = await self._newest_turn(session_id, message_id)
                        if turn_id is None:
                            raise MessageNotFound(f"there is no message {message_id}", message_id=message_id)
                elif event.data.get("session_id") == session_id and event.type == "turn_finished":
                    turn_id = str(event.data.get("turn_id"))
                turn = None if turn_id is None else await self.turn(turn_id)
                if turn is not None and message_id in turn.messages and turn.status not in OPEN:
                    data = turn.data
                    return TurnOutcome(turn.id, turn.messages[-1], turn.status, data.get("stopped"), data.get("error"))
        raise Gone(f"the server at {self.url} ended before the turn did", session_id=session_id)

    async def _stored_id(self, session_id: str, message_id: str) -> str:
        """Return the server's id of a message that the caller may know only by a client id."""
        if is_message_id(message_id):
            return message_id
        try:
            stream = RemoteEngine.attach(self, session_id, message_id=message_id)
            async with contextlib.aclosing(cast(AsyncGenerator[dict[str, Any], None], stream)) as chunks:
                first = await anext(chunks)
            with self._wire.reading():
                return str(first["messageMetadata"]["user_message_id"])
        except MessageNotFound as error:
            # A queued message belongs to no turn yet; the error names its id.
            if (stored := error.ids.get("message_id", message_id)) == message_id:
                raise
            return str(stored)

    async def _newest_turn(self, session_id: str, message_id: str) -> str | None:
        cursor: str | None = None
        while True:
            page = await self.tree(session_id, limit=50, cursor=cursor)
            matching = [turn for turn in page.turns if message_id in turn.messages]
            cursor = page.next_cursor
            if matching:
                return max(matching, key=lambda turn: (turn.created_at, turn.id)).id
            # Ids start with their creation time, and no turn is older than a message in it.
            if cursor is None or cursor[4:16] < message_id[4:16]:
                return None


def _arguments(
    signature: inspect.Signature, self: _Remote, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call without those left at the facade's defaults."""
    bound = signature.bind(self, *args, **kwargs).arguments
    arguments: dict[str, Any] = {}
    for name, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            arguments |= bound.get(name, {})
        elif name in bound and bound[name] != parameter.default:
            arguments[name] = bound[name]
    # A relative folder is relative to this process, not to the server.
    arguments |= {name: _absolute(folder) for name, folder in arguments.items() if name in _FOLDER_PARAMETERS}
    routing = arguments.get("routing")
    if isinstance(routing, Routing) and routing.workspace_root is not None:
        arguments["routing"] = msgspec.structs.replace(routing, workspace_root=_absolute(routing.workspace_root))
    return arguments


def _absolute(folder: str | Path) -> str:
    return str(Path(folder).expanduser().absolute())


def _request(operation: Operation, arguments: Mapping[str, Any]) -> tuple[str, bytes | None, Mapping[str, Any]]:
    """Return the path, the body and the query of a call."""
    path = "/".join(
        segment(arguments[operation.parameter(part[1:-1])]) if part.startswith("{") else part
        for part in operation.path.split("/")
    )
    query = {} if operation.query is None else msgspec.to_builtins(operation.query.of(arguments))
    if operation.raw is not None:
        return path, arguments[operation.raw], query
    return path, None if operation.body is None else msgspec.json.encode(operation.body.of(arguments)), query


def _restore(
    engine: Any, operation: Operation, arguments: Mapping[str, Any], headers: Mapping[str, str], data: bytes
) -> Any:
    """Return the value that the facade would have returned."""
    if operation.answer is None:
        return None
    if operation.answer is bytes:
        if not headers.get("content-disposition", "").startswith("attachment"):
            raise ValueError("expected a file response")
        if operation.name != "blob":
            return data
        if sha256(data).hexdigest() != arguments["sha256"]:
            raise ValueError("blob digest mismatch")
        return Blob(arguments["sha256"], headers["content-type"], data)
    return restore(operation, data, lambda id_, queued: RemoteSubmission(engine, arguments["session_id"], id_, queued))
