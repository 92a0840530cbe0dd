"""The chat transport of the AI SDK, version 6.

A client posts its whole history; only the newest message is used, or the answers it holds to pending requests. The rest
is already in the store. Replacing an earlier message, and regenerating an answer, are rewinds that run. Refusals come
before the first frame, as problems; later failures are in the stream.
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
from clew.fronts.http.answer import no_content
from clew.fronts.http.identity import Engines
from clew.fronts.http.log import about_session
from clew.fronts.http.problem import BadRequest
from clew.fronts.http.request import MAX_CHAT_BODY, parse, parse_raw, read_body, read_query
from clew.fronts.http.sse import CHAT_HEADERS, EventStream, Streams, chunk_frames
from clew.fronts.operations.runs import MAX_PARTS, AttachQuery, ChatBody
from clew.ids import is_alias
from clew.session.api import Engine
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow
from clew.transcript.part import approval_of, call_id_of, is_preliminary, output_of, state_of, steps_in
from clew.transcript.session import Session, read_model
from clew.transcript.value_check import check_value

__all__ = ["ApprovalAttempt", "Approvals", "Chat", "begin_chat"]

Batches = AsyncIterator[Sequence[c.Chunk]]
_CHAT_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}", re.ASCII)
"""An id that a client may choose for a chat, such as those of `useChat`, or a UUID."""
_NO_NEW_MESSAGE: Final = "the newest message must be from the user, or answer pending requests"


class ClientMessage(msgspec.Struct):
    """The newest message of a client."""

    role: Literal["user", "assistant", "system"]
    parts: list[dict[str, Any]]
    id: str | None = None
    metadata: dict[str, Any] | None = None


class ApprovalAttempt(msgspec.Struct, frozen=True):
    """An answer to an approval request that a client has put into its chat. ``owner`` is that of the engine behind the
    chat, None for the unscoped one. Whether the request is pending has not been checked yet.
    """

    session: Session
    approval_id: str
    approved: bool
    owner: str | None


Approvals: TypeAlias = bool | Callable[[ApprovalAttempt], bool | Awaitable[bool]]
"""A flag that accepts all answers to approval requests or none, or a function that decides each time."""


class Chat:
    """``POST /api/chat`` and the stream to reconnect to."""

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
                return no_content()  # created by its first message; nothing to resume yet
            raise
        options = read_query(request, AttachQuery)
        # The header of a client that reconnects by itself is newer than the address it keeps.
        after = request.headers.get("last-event-id") or options.after
        batches = await engine.find_batches(
            session.id, replay=options.replay, message_id=options.message_id, after=after
        )
        return no_content() if batches is None else self._stream(batches)

    async def chat(self, request: Request) -> Any:
        body = await read_body(request, ChatBody, limit=MAX_CHAT_BODY, parser=parse_raw)
        engine = self._engines.of(request)
        try:
            # An authenticated client may also call the `answer` operation.
            with acting_as(engine.owner or ADMIN, "chat"):
                batches = await begin_chat(engine, body, create=self._may_create(body.id), approvals=True, agents=True)
        except e.ClewError as error:
            try:
                about_session(request, (await engine.get_session(body.id)).id)
            except (e.SessionNotFound, e.InvalidId):
                # Where the message would not have created the session, that error takes precedence.
                if not self._may_create(body.id):
                    raise
            raise error
        about_session(request, body.id)
        return self._stream(batches)

    def _may_create(self, name: str) -> bool:
        return self._create and is_alias(name) and _CHAT_ID.fullmatch(name) is not None

    def _stream(self, batches: Batches) -> EventStream:
        return EventStream(chunk_frames(batches), self._streams, finite=True, headers=CHAT_HEADERS)


async def begin_chat(
    engine: Engine, body: ChatBody, *, create: bool = False, approvals: Approvals = False, agents: bool = False
) -> Batches:
    """Accept what a client posted; every refusal raises before any part of the response.

    ``create``: an unknown chat is created by its first message, under the client's id as its alias. ``approvals``:
    whether it may answer approval requests. ``agents``: whether it may choose the agent.
    """
    check_value([body.model, body.agent], "the body")
    if body.agent is not None and not agents:
        raise e.PermissionDenied("this chat does not let clients choose the agent; omit `agent`")
    chat_request = _ChatRequest(engine, approvals)
    if create and is_alias(body.id) and body.trigger != "regenerate-message" and _newest(body).role == "user":
        try:
            await engine.get_session(body.id)
        except (e.SessionNotFound, e.InvalidId):
            with contextlib.suppress(e.AliasTaken):
                await engine.create_session(model=body.model, agent=body.agent, alias=body.id)
    if body.trigger == "regenerate-message":
        return await chat_request.regenerate(body)
    newest = _newest(body)
    if newest.role == "user":
        return await chat_request.send(body.id, newest, body)
    if newest.role == "assistant":
        # The actor set by a front, else the owner that the host has scoped this engine to.
        known = acting()
        with acting_as(known.name if known is not None else engine.owner or HOST, "chat"):
            return await chat_request.answer(await engine.get_session(body.id), newest)
    raise e.InvalidInput(_NO_NEW_MESSAGE)


class _ChatRequest(msgspec.Struct, frozen=True):
    """The kinds of posts, each with the stream of its outcome."""

    engine: Engine
    approvals: Approvals

    async def send(self, session_id: str, newest: ClientMessage, body: ChatBody) -> Batches:
        """Submit the newest message, at the end or in place of an earlier one."""
        if len(newest.parts) > MAX_PARTS:
            raise e.InvalidInput(f"a user message can have at most {MAX_PARTS} parts")
        options: dict[str, Any] = {"model": body.model, "agent": body.agent, "metadata": newest.metadata}
        if body.message_id is not None:
            options |= {"mode": "edit", "parts": newest.parts, "client_message_id": newest.id}
            return await self._rewind(session_id, body.message_id, options)
        return (await self.engine.start(session_id, newest.parts, message_id=newest.id, **options)).batches

    async def regenerate(self, body: ChatBody) -> Batches:
        """Run the user message of an answer again."""
        session = await self.engine.get_session(body.id)
        row = await self.engine.find_prompt_of(session.id, body.message_id)
        options: dict[str, Any] = {}
        if self._differs(body, row, session):
            # The message names its model and agent, and never changes: send it again, under the client's id.
            options = {"mode": "edit", "model": body.model, "agent": body.agent}
            options["client_message_id"] = _client_id_of(body, row)
        return await self._rewind(session.id, row.id, options)

    def _differs(self, body: ChatBody, row: MessageRow, session: Session) -> bool:
        """Return whether another model or agent than the message names is to answer."""
        named = session.model if session.model_picked_since(row.created_at) else row.asked_model
        if body.model is not None and (named is None or self.engine.parse_model(body.model) != read_model(named)):
            return True
        return body.agent is not None and body.agent != (row.asked_agent or session.agent)

    async def _rewind(self, session_id: str, message_id: str, options: Mapping[str, Any]) -> Batches:
        rewound = await self.engine.rewind(session_id, message_id, run=True, **options)
        if rewound.submission is None:
            raise e.InternalError("a rewind with run=True started no turn", session_id=session_id)
        return (await self.engine.follow(session_id, rewound.submission)).batches

    async def _check_approvals(self, session: Session, newest: ClientMessage) -> None:
        """Refuse all answers of a message if one of them is not allowed here."""
        for part in _last_step(newest):
            if self.approvals is True or not _is_approval(part):
                continue
            approval = approval_of(part)
            attempt = ApprovalAttempt(session, approval["id"], approval["approved"], self.engine.owner)
            allowed = self.approvals(attempt) if callable(self.approvals) else False
            if (await allowed if inspect.isawaitable(allowed) else allowed) is not True:
                raise e.PermissionDenied(
                    "this chat does not accept approvals; answer them in the host with `engine.answer`",
                    session_id=session.id,
                    approval_id=approval["id"],
                )

    async def answer(self, session: Session, newest: ClientMessage) -> Batches:
        """Apply the answers in the client's copy of the message, and follow what they start."""
        engine = self.engine
        await self._check_approvals(session, newest)
        has_answers, remaining, is_current = False, None, True
        for part in _last_step(newest):
            call_id, state, approval = call_id_of(part), state_of(part), approval_of(part)
            approval_id, approved, reason = approval.get("id"), approval.get("approved"), approval.get("reason")
            is_approval = _is_approval(part)
            is_output = state == "output-available" and not approval and not is_preliminary(part)
            if call_id is None or not (is_approval or is_output):
                continue
            has_answers = True
            # Let the engine decide whether a request is still pending: a status may lag behind the stream.
            try:
                if is_approval:
                    comment = reason if isinstance(reason, str) else None
                    decision: Literal["once", "deny"] = "once" if approved else "deny"
                    remaining, resumed = await engine.answer_stream(session.id, str(approval_id), decision, comment)
                else:
                    remaining, resumed = await engine.answer_question_stream(session.id, call_id, output_of(part))
            except (e.AlreadyAnswered, e.ApprovalNotFound):
                is_current = False  # another client has answered this one, and may have resumed the run
                continue
            is_current = True
            if resumed is not None:
                return resumed.batches
        if not has_answers:
            raise e.InvalidInput(_NO_NEW_MESSAGE)
        if remaining is not None and (is_current or (await engine.get_status(session.id)).waiting):
            return _still_waiting(newest)
        # This post has started nothing: the run, if there is one, is that of another post.
        stream = await engine.find_stream(session.id)
        if stream is not None and stream.message_id == newest.id:
            # A repeated post: the first one had the answers. The client already has everything before this run.
            return stream.follow(replay=False)
        if remaining is not None and newest.id is not None:
            # Another client gave the last answer, and that run is over or elsewhere: its turn from the beginning.
            batches = await engine.find_batches(session.id, message_id=newest.id)
            if batches is not None:
                return batches
        if (await engine.get_status(session.id)).waiting:
            raise e.WaitingForHuman("this session is waiting for other answers than these", session_id=session.id)
        raise e.AlreadyAnswered(
            "the requests that these answers belong to are no longer pending", session_id=session.id
        )


def _last_step(message: ClientMessage) -> Sequence[dict[str, Any]]:
    """Return the parts that can be answers: earlier steps of a message cannot be pending."""
    return message.parts[(steps_in(message.parts) or [0])[-1] :]


def _is_approval(part: dict[str, Any]) -> bool:
    approval = approval_of(part)
    answers = isinstance(approval.get("id"), str) and isinstance(approval.get("approved"), bool)
    return answers and state_of(part) == "approval-responded" and call_id_of(part) is not None


def _newest(body: ChatBody) -> ClientMessage:
    if not body.messages:
        raise e.InvalidInput("the request has no messages")
    try:
        return parse(bytes(body.messages[-1]), ClientMessage)
    except BadRequest as error:
        raise e.InvalidInput("the newest message is not an object") from error


def _client_id_of(body: ChatBody, row: MessageRow) -> str:
    """Return the client's id of a message: its own, or clew's if the client uses that."""
    with contextlib.suppress(e.Invalid):
        if _newest(body).id == row.id:
            return row.id
    return row.client_message_id or row.id


async def _still_waiting(message: ClientMessage) -> Batches:
    """Yield an empty step: some requests are answered, but the run resumes only when all are."""
    yield [c.Start(message_id=message.id or c.UNSET), c.Finish(finish_reason="tool-calls")]
