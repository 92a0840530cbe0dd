"""Chat: the transport of the AI SDK, version 6.

A client posts its whole history; only the newest message is taken, or the answers it holds for what waits. Everything
before it is the store's to know. Sending a message in the place of an earlier one, and asking for another answer, are
rewinds that run. Refusals come before the first frame, as problems; what happens after that is in the stream.
"""

from __future__ import annotations

import contextlib
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

import msgspec
from starlette.requests import Request

from clew import errors as e
from clew.actor import ADMIN, HOST, acting, acting_as
from clew.engine import Engine
from clew.fronts.http.answer import nothing
from clew.fronts.http.identity import Engines
from clew.fronts.http.log import about_session
from clew.fronts.http.problem import BadRequest
from clew.fronts.http.request_body import MAX_CHAT_BODY, parse, parse_raw, read_body
from clew.fronts.http.request_query import read_query
from clew.fronts.http.sse import CHAT_HEADERS, EventStream, Streams, chunk_frames
from clew.fronts.operations.runs import MAX_PARTS, AttachQuery, ChatBody
from clew.ids import is_alias
from clew.transcript import chunk as c
from clew.transcript.gate import check_value
from clew.transcript.message import MessageRow
from clew.transcript.part import approval_of, call_id_of, is_preliminary, output_of, state_of, steps_in
from clew.transcript.session import Session, read_model

__all__ = ["ApprovalAttempt", "Approvals", "Chat", "begin_chat"]

Batches = AsyncIterator[Sequence[c.Chunk]]
_CHAT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
"""An id that a client may choose for a chat, such as those of `useChat`, or a UUID."""
_NOTHING_NEW: Final = "the newest message must be the user's, or hold answers to what waits"


class ClientMessage(msgspec.Struct):
    """The newest message of a client."""

    role: Literal["user", "assistant", "system"]
    parts: list[dict[str, Any]]
    id: str | None = None
    metadata: dict[str, Any] | None = None


class ApprovalAttempt(msgspec.Struct, frozen=True):
    """An answer to a request for approval that a client has put into its chat. ``owner`` is that of the engine behind
    the chat, None for the whole one; whether the request is pending is not known yet."""

    session: Session
    approval_id: str
    approved: bool
    owner: str | None


Approvals: TypeAlias = bool | Callable[[ApprovalAttempt], bool | Awaitable[bool]]
"""Whether a chat takes answers to requests for approval, or a function that decides each time."""


class Chat:
    """``POST /api/chat`` and the stream to come back to."""

    def __init__(self, engines: Engines, streams: Streams, *, create: bool = True) -> None:
        self._engines = engines
        self._streams = streams
        self._create = create

    async def attach(self, request: Request) -> Any:
        engine = self._engines.of(request)
        try:
            session = await engine.get_session(request.path_params["id"])
        except e.SessionNotFound:
            if self._may_create(request.path_params["id"]):
                return nothing()  # its first message makes it; until then there is nothing to resume
            raise
        asked = read_query(request, AttachQuery)
        batches = await engine.find_batches(session.id, replay=asked.replay, message_id=asked.message_id)
        return nothing() if batches is None else self._stream(batches)

    async def chat(self, request: Request) -> Any:
        body = await read_body(request, ChatBody, limit=MAX_CHAT_BODY, parser=parse_raw)
        engine = self._engines.of(request)
        try:
            # A client that is let in here may call the `answer` operation, too.
            with acting_as(engine.owner or ADMIN, "chat"):
                batches = await begin_chat(engine, body, create=self._may_create(body.id), approvals=True, agents=True)
        except e.ClewError:
            # Whatever else is wrong, that there is no such session is said first.
            about_session(request, (await engine.get_session(body.id)).id)
            raise
        about_session(request, body.id)
        return self._stream(batches)

    def _may_create(self, name: str) -> bool:
        return self._create and is_alias(name) and _CHAT_ID.fullmatch(name) is not None

    def _stream(self, batches: Batches) -> EventStream:
        return EventStream(chunk_frames(batches), self._streams, finite=True, headers=CHAT_HEADERS)


async def begin_chat(
    engine: Engine, body: ChatBody, *, create: bool = False, approvals: Approvals = False, agents: bool = False
) -> Batches:
    """Take what a client posted; every refusal raises, before anything of an answer is there.

    ``create``: an unknown chat is created by its first message, under the client's id as its alias.
    ``approvals``: whether it may answer requests for approval. ``agents``: whether it may choose the agent.
    """
    check_value([body.model, body.agent], "the body")
    if body.agent is not None and not agents:
        raise e.PermissionDenied("this chat does not let a client choose the agent; leave `agent` out")
    taking = _Taking(engine, approvals)
    if create and is_alias(body.id) and body.trigger != "regenerate-message" and _newest(body).role == "user":
        try:
            await engine.get_session(body.id)
        except (e.SessionNotFound, e.InvalidId):
            with contextlib.suppress(e.AliasTaken):
                await engine.create_session(model=body.model, agent=body.agent, alias=body.id)
    if body.trigger == "regenerate-message":
        return await taking.regenerate(body)
    newest = _newest(body)
    if newest.role == "user":
        return await taking.send(body.id, newest, body)
    if newest.role == "assistant":
        # The actor that a front has set; else the owner that the host has scoped this engine to.
        known = acting()
        with acting_as(known.name if known is not None else engine.owner or HOST, "chat"):
            return await taking.answer(await engine.get_session(body.id), newest)
    raise e.InvalidInput(_NOTHING_NEW)


class _Taking(msgspec.Struct, frozen=True):
    """The ways a post is taken, each to the stream that comes of it."""

    engine: Engine
    approvals: Approvals

    async def send(self, session_id: str, newest: ClientMessage, body: ChatBody) -> Batches:
        """The newest message, at the end or in the place of an earlier one."""
        if len(newest.parts) > MAX_PARTS:
            raise e.InvalidInput(f"a message of a user has at most {MAX_PARTS} parts")
        asked: dict[str, Any] = {"model": body.model, "agent": body.agent, "metadata": newest.metadata}
        if body.message_id is not None:
            asked |= {"mode": "edit", "parts": newest.parts, "client_message_id": newest.id}
            return await self._rewind(session_id, body.message_id, asked)
        return (await self.engine.start(session_id, newest.parts, message_id=newest.id, **asked)).batches

    async def regenerate(self, body: ChatBody) -> Batches:
        """Another answer to the user message of an answer."""
        session = await self.engine.get_session(body.id)
        row = await self.engine.find_asked(session.id, body.message_id)
        asked: dict[str, Any] = {}
        if self._differs(body, row, session):
            # Who answers is said in the message, and a message never changes: it is sent again, under the client's id.
            asked = {"mode": "edit", "model": body.model, "agent": body.agent}
            asked["client_message_id"] = _name_of(body, row)
        return await self._rewind(session.id, row.id, asked)

    def _differs(self, body: ChatBody, row: MessageRow, session: Session) -> bool:
        """Return whether another model or agent than the message names is to answer."""
        named = session.model if session.model_picked_since(row.created_at) else row.asked_model
        if body.model is not None and (named is None or self.engine.parse_model(body.model) != read_model(named)):
            return True
        return body.agent is not None and body.agent != (row.asked_agent or session.agent)

    async def _rewind(self, session_id: str, message_id: str, asked: Mapping[str, Any]) -> Batches:
        rewound = await self.engine.rewind(session_id, message_id, run=True, **asked)
        if rewound.submission is None:
            raise e.InternalError("a rewind that runs has begun nothing", session_id=session_id)
        return (await self.engine.follow(session_id, rewound.submission)).batches

    async def _check_approvals(self, session: Session, newest: ClientMessage) -> None:
        """Refuse all answers of a message when one of them may not be given here."""
        for part in _last_step(newest):
            if self.approvals is True or not _is_approval(part):
                continue
            approval = approval_of(part)
            attempt = ApprovalAttempt(session, approval["id"], approval["approved"], self.engine.owner)
            allowed = self.approvals(attempt) if callable(self.approvals) else False
            if (await allowed if inspect.isawaitable(allowed) else allowed) is not True:
                raise e.PermissionDenied(
                    "this chat accepts no approvals; the host answers them with `engine.answer`",
                    session_id=session.id,
                    approval_id=approval["id"],
                )

    async def answer(self, session: Session, newest: ClientMessage) -> Batches:
        """Answer what waits as the client's copy of the message says, and follow what comes of it."""
        engine = self.engine
        await self._check_approvals(session, newest)
        answered, left = False, None
        for part in _last_step(newest):
            call_id, state, approval = call_id_of(part), state_of(part), approval_of(part)
            approval_id, approved, reason = approval.get("id"), approval.get("approved"), approval.get("reason")
            is_approval = _is_approval(part)
            is_output = state == "output-available" and not approval and not is_preliminary(part)
            if call_id is None or not (is_approval or is_output):
                continue
            answered = True
            # Whether it still waits is asked of the engine by answering: a status may lag behind the stream.
            with contextlib.suppress(e.AlreadyAnswered, e.ApprovalNotFound):
                if is_approval:
                    words = reason if isinstance(reason, str) else None
                    left = await engine.answer(session.id, str(approval_id), "once" if approved else "deny", words)
                else:
                    left = await engine.answer_question(session.id, call_id, output_of(part))
            if left == 0 and (stream := await engine.find_stream(session.id)) is not None:
                return stream.follow(replay=False)
        if not answered:
            raise e.InvalidInput(_NOTHING_NEW)
        if left is not None:
            return _still_waiting(newest)
        stream = await engine.find_stream(session.id)
        if stream is not None and stream.message_id == newest.id:
            # Sent twice: the first was the answer. The client has all that came before this run.
            return stream.follow(replay=False)
        if (await engine.get_status(session.id)).waiting:
            raise e.WaitingForHuman("this session waits for other answers than these", session_id=session.id)
        raise e.AlreadyAnswered("nothing that these answers are for waits here", session_id=session.id)


def _last_step(message: ClientMessage) -> Sequence[dict[str, Any]]:
    """Return the parts of a client's message that can be answers: nothing before its last step can be pending."""
    return message.parts[(steps_in(message.parts) or [0])[-1] :]


def _is_approval(part: dict[str, Any]) -> bool:
    approval = approval_of(part)
    answers = isinstance(approval.get("id"), str) and isinstance(approval.get("approved"), bool)
    return answers and state_of(part) == "approval-responded" and call_id_of(part) is not None


def _newest(body: ChatBody) -> ClientMessage:
    if not body.messages:
        raise e.InvalidInput("there is no message to send")
    try:
        return parse(bytes(body.messages[-1]), ClientMessage)
    except BadRequest as error:
        raise e.InvalidInput("the newest message is not an object") from error


def _name_of(body: ChatBody, row: MessageRow) -> str:
    """What the client calls a message: by its own id, or by ours if it was given that."""
    with contextlib.suppress(e.Invalid):
        if _newest(body).id == row.id:
            return row.id
    return row.client_message_id or row.id


async def _still_waiting(message: ClientMessage) -> Batches:
    """Some of it is answered; nothing runs until all of it is."""
    yield [c.Start(message_id=message.id or c.UNSET), c.Finish(finish_reason="tool-calls")]
