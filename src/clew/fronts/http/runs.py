"""Runs: prompts, going on, stopping, what a session is doing, its queue, and the answers a human gives."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.routing import BaseRoute

from clew.engine import Engine
from clew.errors import InvalidInput
from clew.fronts.http.answer import answer, nothing
from clew.fronts.http.body import MAX_PARTS, Nothing, read
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import Aborted, MessageList, ModelName, Remaining
from clew.fronts.http.sse import EventStream, Streams, closing, frame
from clew.fronts.shape import SubmissionShape, submission_shape
from clew.live.base import Status
from clew.runtime.submission import Submission

__all__ = ["Runs"]


class PromptBody(msgspec.Struct):
    """A prompt: its text, or its parts."""

    text: str | None = None
    parts: Annotated[list[dict[str, Any]], Meta(max_length=MAX_PARTS)] | None = None
    model: ModelName | None = None
    agent: str | None = None
    message_id: str | None = None
    on_busy: Literal["queue", "reject", "interrupt"] | None = None


class ApprovalBody(msgspec.Struct):
    """A human's word on a request."""

    decision: Literal["once", "session", "project", "deny"]
    reason: Annotated[str, Meta(max_length=10_000)] | None = None


class AnswerBody(msgspec.Struct):
    """A human's answer to a question; null is one too."""

    output: Any | UnsetType = UNSET


class Runs:
    """The routes of a session that start, stop or watch what runs on it."""

    def __init__(self, engine: Engine, streams: Streams) -> None:
        self._engine = engine
        self._streams = streams

    def routes(self) -> list[BaseRoute]:
        session = "/api/sessions/{id}"
        return [
            route(f"{session}/prompt", POST=self._prompt),
            route(f"{session}/continue", POST=self._continue),
            route(f"{session}/abort", POST=self._abort),
            route(f"{session}/status", GET=self._status),
            route(f"{session}/queue", GET=self._queue),
            route(f"{session}/queue/{{message_id}}", DELETE=self._cancel),
            route(f"{session}/approvals/{{approval_id}}", POST=self._approve),
            route(f"{session}/answers/{{tool_call_id}}", POST=self._answer),
        ]

    @operation("Send a prompt.", {202: SubmissionShape}, body=PromptBody, refuses=(409,))
    async def _prompt(self, request: Request) -> Any:
        body = await read(request, PromptBody)
        if (body.text is None) == (body.parts is None):
            raise InvalidInput("a prompt has either text or parts")
        submission = await self._engine.submit(
            request.path_params["id"],
            body.text if body.text is not None else body.parts or [],
            model=body.model,
            agent=body.agent,
            message_id=body.message_id,
            on_busy=body.on_busy or "queue",
        )
        return _taken(submission)

    @operation("Go on.", {202: SubmissionShape}, body=Nothing, body_optional=True, refuses=(409,))
    async def _continue(self, request: Request) -> Any:
        await read(request, Nothing, optional=True)
        return _taken(await self._engine.continue_turn(request.path_params["id"]))

    @operation("Stop what runs, or deny what waits.", {202: Aborted}, body=Nothing, body_optional=True, refuses=(409,))
    async def _abort(self, request: Request) -> Any:
        await read(request, Nothing, optional=True)
        return answer(Aborted(await self._engine.abort(request.path_params["id"])), 202)

    @operation("What it is doing; as a stream the present status, then each change.", {200: Status}, streams=Status)
    async def _status(self, request: Request) -> Any:
        session_id = request.path_params["id"]
        status = await self._engine.get_status(session_id)
        if "text/event-stream" not in request.headers.get("accept", ""):
            return answer(status)
        return EventStream(self._statuses(session_id), self._streams, finite=False)

    async def _statuses(self, session_id: str) -> AsyncGenerator[bytes, None]:
        async with closing(self._engine.watch_status(session_id)) as statuses:
            async for status in statuses:
                yield frame(status)

    @operation("The messages that wait.", {200: MessageList})
    async def _queue(self, request: Request) -> Any:
        return answer(MessageList(await self._engine.queue(request.path_params["id"])))

    @operation("Take a message out of the queue.", {204: None}, refuses=(409,))
    async def _cancel(self, request: Request) -> Any:
        await self._engine.cancel_queued(request.path_params["id"], request.path_params["message_id"])
        return nothing()

    @operation("Answer a request for approval.", {200: Remaining}, body=ApprovalBody, refuses=(409,))
    async def _approve(self, request: Request) -> Any:
        session = await self._engine.get_session(request.path_params["id"])
        body = await read(request, ApprovalBody)
        approval_id = request.path_params["approval_id"]
        return answer(Remaining(await self._engine.answer(session.id, approval_id, body.decision, body.reason)))

    @operation("Answer a question.", {200: Remaining}, body=AnswerBody, refuses=(409,))
    async def _answer(self, request: Request) -> Any:
        session = await self._engine.get_session(request.path_params["id"])
        body = await read(request, AnswerBody)
        if body.output is UNSET:
            raise InvalidInput("an answer has an output")
        call_id = request.path_params["tool_call_id"]
        return answer(Remaining(await self._engine.answer_question(session.id, call_id, body.output)))


def _taken(submission: Submission) -> Any:
    return answer(submission_shape(submission), 202)
