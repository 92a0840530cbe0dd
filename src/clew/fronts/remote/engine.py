"""The remote engine: the engine of a running server, by the names and with the values of the one in this process.

A store has one owner. When that is a server, commands that write ask it; nobody who uses an engine needs to know which
of the two it is. Its methods are made from the table of operations: the facade's own signature says what a call means,
the table how it travels. What is put together of other operations is inherited; what only the owner's process can
have, its store and its hooks, is not here.
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

from clew.dispatch.events import Events
from clew.dispatch.schedules import Schedules
from clew.dispatch.webhooks import Webhooks
from clew.engine import Operations, SessionList
from clew.errors import MessageNotFound
from clew.fit import fit, fit_json
from clew.fronts.operations import BY_NAME, OPERATIONS, Operation
from clew.fronts.operations import results as r
from clew.fronts.remote.wire import Gone, Wire, segment
from clew.history.rewind import Rewound
from clew.ids import is_alias, is_message_id
from clew.live.base import Event
from clew.permissions.explain import Explanation
from clew.runtime.submission import Submission, TurnOutcome
from clew.store.base import Blob, Damage
from clew.transcript.rule import Rule
from clew.transcript.session import Session
from clew.transcript.turn_state import OPEN
from clew.triggers.routing import Routing
from clew.triggers.webhook import Webhook

__all__ = ["RemoteEngine"]

_DONE: Final = b"[DONE]"
_FOLDERS: Final = ("workspace", "workspace_root")
_RETURNED: Final[Mapping[Any, Any]] = {
    r.SessionShape: Session,
    r.SessionPage: SessionList,
    r.SessionList: list[Session],
    r.RuleList: tuple[Rule, ...],
    r.ExplainedShape: Explanation,
}
"""What the facade returns where that is not what is answered."""


def _send(operation: Operation, method: Callable[..., Any]) -> Callable[..., Any]:
    """The facade's ``method``, carried out by the server."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    async def send(self: _Remote, *args: Any, **kwargs: Any) -> Any:
        given = _arguments(signature, self, args, kwargs)
        headers, answer = await self._wire.send(operation.method, *_request(operation, given), good=operation.answers)
        with self._wire.reading():
            return _restore(self, operation, given, headers, answer)

    @functools.wraps(method)
    async def watch(self: _Remote, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        path, _, query = _request(operation, _arguments(signature, self, args, kwargs))
        begun = done = False
        async with contextlib.aclosing(self._wire.frames(path, query)) as frames:
            async for frame in frames:
                begun, done = True, frame == _DONE
                if done:
                    continue
                with self._wire.reading():
                    if operation.streams is r.EventFrame:
                        # From the first event, ``hello``, on none is missed.
                        told = fit_json(frame, dict[str, Any])
                        value: Any = Event(told.pop("type"), told)
                    else:
                        # A chunk stays as it came, with all that is in it.
                        value = fit_json(frame, operation.streams)
                        value = msgspec.json.decode(frame) if operation.streams is r.Chunk else value
                yield value
        if operation.streams is r.Chunk and begun and not done:
            raise Gone(f"the server at {self._wire.url} broke off in the middle of a stream")

    return watch if inspect.isasyncgenfunction(method) or (operation.answer is None and operation.streams) else send


class _Remote:
    """Has the operations of a class, those of one ``group``, carried out by the server."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def __init_subclass__(cls, group: str | None = None) -> None:
        for operation in OPERATIONS:
            for name in filter(None, (operation.name, operation.watched_by)):
                prefix, _, own = name.rpartition(".")
                if prefix == group and not operation.served:
                    setattr(cls, own, _send(operation, getattr(cls, own)))


class RemoteEvents(_Remote, Events, group="events"):
    """The ledger of a server."""


class RemoteSchedules(_Remote, Schedules, group="schedules"):
    """The schedules of a server."""


class RemoteWebhooks(_Remote, Webhooks, group="webhooks"):
    """The webhooks of a server. A secret is there when it was just made, and empty otherwise."""


class RemoteSubmission(Submission):
    """A prompt that a server took. Its end is asked for when somebody waits for it."""

    def __init__(self, engine: RemoteEngine, session_id: str, message_id: str, queued: bool) -> None:
        super().__init__(message_id, asyncio.get_running_loop().create_future(), queued=queued)
        self._engine = engine
        self._session_id = session_id

    async def wait(self) -> TurnOutcome:
        return await self._engine.outcome(self._session_id, self.message_id)


class RemoteEngine(_Remote, Operations, group=""):
    """What of an engine a server offers."""

    def __init__(self, wire: Wire) -> None:
        super().__init__(wire)
        self.url = wire.url
        self.events = RemoteEvents(self._wire)
        self.schedules = RemoteSchedules(self._wire)
        self.webhooks = RemoteWebhooks(self._wire)

    async def probe(self) -> None:
        """Raise when the server does not answer within a few seconds."""
        await self._wire.probe()

    async def examples(self) -> list[Session]:
        """The sample sessions, made by the server where they are not there yet."""
        _, answered = await self._wire.send("POST", BY_NAME["examples"].path)
        return fit_json(answered, dict[str, list[Session]])["sessions"]

    async def losses(self) -> tuple[Damage, ...]:
        return (await self._server()).losses

    async def store_kind(self) -> str:
        return (await self._server()).store

    async def is_passing(self) -> bool:
        """Whether it is a chat's, and ends when that does."""
        return not (await self._server()).triggers

    async def _server(self) -> r.ServerShape:
        _, answered = await self._wire.send("GET", BY_NAME["server"].path)
        return fit_json(answered, r.ServerShape)

    async def outcome(self, session_id: str, message_id: str) -> TurnOutcome:
        """How the newest turn of a message ends. Listens first and looks then, so that no end is missed."""
        message_id = await self._stored_id(session_id, message_id)
        if is_alias(session_id):
            # What happens is told of the session, whatever else it is called.
            session_id = (await self.get_session(session_id)).id
        async with contextlib.aclosing(cast(AsyncGenerator[Event, None], self.subscribe())) as events:
            async for event in events:
                turn_id: str | None = None
                if str(event.type) == "hello":
                    turn_id = await self._newest_turn(session_id, message_id)
                    if turn_id is None and message_id not in {one.id for one in await self.queue(session_id)}:
                        # It may have been fired between the two looks.
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
        """The id that the server gave a message, whose sender may know none but their own."""
        if is_message_id(message_id):
            return message_id
        try:
            following = RemoteEngine.attach(self, session_id, message_id=message_id)
            async with contextlib.aclosing(cast(AsyncGenerator[dict[str, Any], None], following)) as chunks:
                first = await anext(chunks)
            with self._wire.reading():
                return str(first["messageMetadata"]["user_message_id"])
        except MessageNotFound as error:
            # One that waits in the queue is in no turn yet, and is named.
            if (stored := error.ids.get("message_id", message_id)) == message_id:
                raise
            return str(stored)

    async def _newest_turn(self, session_id: str, message_id: str) -> str | None:
        cursor: str | None = None
        while True:
            page = await self.tree(session_id, limit=50, cursor=cursor)
            held = [turn for turn in page.turns if message_id in turn.messages]
            cursor = page.next_cursor
            if held:
                return max(held, key=lambda turn: (turn.created_at, turn.id)).id
            # Ids begin with the time they were made at: no turn is older than the message that it holds.
            if cursor is None or cursor[4:16] < message_id[4:16]:
                return None


def _arguments(
    signature: inspect.Signature, self: _Remote, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """What a call says: nothing that is left to the facade's own default."""
    bound = signature.bind(self, *args, **kwargs).arguments
    given: dict[str, Any] = {}
    for name, parameter in list(signature.parameters.items())[1:]:
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= bound.get(name, {})
        elif name in bound and bound[name] != parameter.default:
            given[name] = bound[name]
    # A relative folder is one of this process, not of the server's.
    given |= {name: _absolute(folder) for name, folder in given.items() if name in _FOLDERS}
    routing = given.get("routing")
    if isinstance(routing, Routing) and routing.workspace_root is not None:
        given["routing"] = msgspec.structs.replace(routing, workspace_root=_absolute(routing.workspace_root))
    return given


def _absolute(folder: str | Path) -> str:
    return str(Path(folder).expanduser().absolute())


def _request(operation: Operation, given: Mapping[str, Any]) -> tuple[str, bytes | None, Mapping[str, Any]]:
    """The path, the body and the query of a call."""
    path = "/".join(
        segment(given[operation.parameter(part[1:-1])]) if part.startswith("{") else part
        for part in operation.path.split("/")
    )
    query = {} if operation.query is None else msgspec.to_builtins(operation.query.of(given))
    if operation.raw is not None:
        return path, given[operation.raw], query
    return path, None if operation.body is None else msgspec.json.encode(operation.body.of(given)), query


def _restore(
    engine: Any, operation: Operation, given: Mapping[str, Any], headers: Mapping[str, str], data: bytes
) -> Any:
    """What the facade would have returned."""
    kind = operation.answer
    if kind is None:
        return None
    if kind is bytes:
        if not headers.get("content-disposition", "").startswith("attachment"):
            raise ValueError("it is no file")
        if operation.name != "blob":
            return data
        if sha256(data).hexdigest() != given["sha256"]:
            raise ValueError("these are the bytes of another file")
        return Blob(given["sha256"], headers["content-type"], data)
    if kind in (r.WebhookShape, r.WebhookList):
        shown = msgspec.json.decode(data)
        hooks = tuple(fit({"secret": "", **one}, Webhook) for one in shown.get("webhooks", [shown]))
        return hooks[0] if kind is r.WebhookShape else hooks
    if kind is r.QueueShape:
        return fit_json(data, r.QueueShape).messages
    if operation.envelope is not None:
        data = bytes(fit_json(data, dict[str, msgspec.Raw])[operation.envelope])
        kind = _RETURNED.get(kind) or msgspec.structs.fields(kind)[0].type
    value = fit_json(data, _RETURNED.get(kind, kind))
    if isinstance(value, r.SubmissionShape):
        return RemoteSubmission(engine, given["session_id"], value.message_id, value.queued)
    if isinstance(value, r.RewoundShape):
        taken = None
        if isinstance(value.message_id, str):
            taken = RemoteSubmission(engine, given["session_id"], value.message_id, value.queued is True)
        return Rewound(value.head_turn_id, value.hidden, value.draft, taken)
    return value
