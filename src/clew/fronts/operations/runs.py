"""Operations on runs: prompts, going on, stopping, what a session is doing, its queue, a human's answers, streams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.errors import InvalidInput
from clew.fronts.operations.operation import Arguments, Operation
from clew.fronts.operations.results import Aborted, Chunk, ModelName, QueueShape, Remaining, SubmissionShape
from clew.live.base import Status

__all__ = ["MAX_PARTS", "OPERATIONS", "STREAM_OPERATIONS", "AttachQuery", "ChatBody", "Parts"]

MAX_PARTS: Final = 1_000
"""Of one prompt. Each becomes a row."""

Parts = Annotated[list[dict[str, Any]], Meta(max_length=MAX_PARTS)]


class PromptBody(Arguments):
    """A prompt: its text, or its parts."""

    text: str | None = None
    parts: Parts | None = None
    model: ModelName | None = None
    agent: str | None = None
    message_id: str | None = None
    on_busy: Literal["queue", "reject", "interrupt"] | None = None
    attended: bool | None = None
    output: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

    def arguments(self) -> dict[str, Any]:
        if (self.text is None) == (self.parts is None):
            raise InvalidInput("a prompt has either text or parts")
        given = super().arguments()
        return {"prompt": given.pop("text" if self.parts is None else "parts"), **given}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        prompt = arguments["prompt"]
        return super().of({**arguments, **({"text": prompt} if isinstance(prompt, str) else {"parts": list(prompt)})})


class ContinueBody(Arguments):
    """How to go on: with the newest turn where it stopped, or with its prompt anew; with ``queue`` a paused queue is
    started, and nothing else."""

    mode: Literal["on", "again"] = "on"
    queue: bool = False


class AbortBody(Arguments):
    """What becomes of the queue: it stays where it is, paused, or goes on."""

    queue: Literal["stay", "go_on"] = "stay"


class QueuedBody(Arguments):
    """A queued message in other words."""

    text: Annotated[str, Meta(max_length=10_000_000)]


class MoveBody(Arguments):
    """Before which message it is to be fired; null is last."""

    before: str | None = None


class PauseBody(Arguments):
    """Whether the queue waits until a person says go on, or goes on."""

    paused: bool = True


class ApprovalBody(Arguments):
    """A human's word on a request."""

    decision: Literal["once", "session", "project", "deny"]
    reason: Annotated[str, Meta(max_length=10_000)] | None = None
    pattern: Annotated[str, Meta(max_length=100_000)] | None = None


class AllApprovalsBody(Arguments):
    """A human's word on every request that waits, or on those of them that were seen."""

    decision: Literal["once", "session", "project", "deny"]
    reason: Annotated[str, Meta(max_length=10_000)] | None = None
    approval_ids: Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=1_000)] | None = None


class AnswerBody(Arguments):
    """A human's answer to a question; null is one too."""

    output: Any | UnsetType = UNSET

    def arguments(self) -> dict[str, Any]:
        if self.output is UNSET:
            raise InvalidInput("an answer has an output")
        return super().arguments()


class AttachQuery(Arguments):
    """From the first part of the live message on; without ``replay`` only what comes from now on. ``message_id`` asks
    for the turn that holds it, which may be over."""

    replay: bool = True
    message_id: str | None = None


class ChatBody(msgspec.Struct, rename="camel"):
    """What a v6 transport posts. Messages stay raw: they are the client's memory, not ours."""

    id: str
    messages: list[msgspec.Raw]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    model: ModelName | None = None
    agent: str | None = None


OPERATIONS: Final = (
    Operation("submit", "POST …/prompt", "Send a prompt.", {202: SubmissionShape}, PromptBody),
    Operation("continue_turn", "POST …/continue", "Go on.", {202: SubmissionShape}, ContinueBody, optional=True),
    Operation(
        "abort",
        "POST …/abort",
        "Stop what runs, or deny what waits; the queue is paused.",
        {202: Aborted},
        AbortBody,
        optional=True,
    ),
    Operation(
        "get_status",
        "GET …/status",
        "What it is doing; as a stream the present status, then each change.",
        {200: Status},
        streams=Status,
        watched_by="watch_status",
    ),
    Operation("queue", "GET …/queue", "The messages that wait.", {200: QueueShape}),
    Operation("cancel_queued", "DELETE …/queue/{message_id}", "Take a message out of the queue.", {204: None}),
    Operation("edit_queued", "PATCH …/queue/{message_id}", "Say it in other words.", {204: None}, QueuedBody),
    Operation(
        "move_queued",
        "POST …/queue/{message_id}/move",
        "Fire it earlier, or later.",
        {204: None},
        MoveBody,
        optional=True,
    ),
    Operation("send_queued", "POST …/queue/{message_id}/send", "Send it now.", {202: SubmissionShape}),
    Operation(
        "pause_queue", "POST …/queue/pause", "Pause the queue, or go on with it.", {204: None}, PauseBody, optional=True
    ),
    Operation(
        "answer",
        "POST …/approvals/{approval_id}",
        "Answer a request for approval.",
        {200: Remaining},
        ApprovalBody,
        found_first=True,
    ),
    Operation(
        "answer_all",
        "POST …/approvals",
        "Answer every request for approval that waits.",
        {200: Remaining},
        AllApprovalsBody,
        found_first=True,
    ),
    Operation(
        "answer_question",
        "POST …/answers/{tool_call_id}",
        "Answer a question.",
        {200: Remaining},
        AnswerBody,
        found_first=True,
    ),
)
STREAM_OPERATIONS: Final = (
    Operation(
        "chat",
        "POST /api/chat",
        "Chat, as the AI SDK v6 does it.",
        {200: None},
        ChatBody,
        streams=Chunk,
        refusals=(404, 409),
        served=True,
    ),
    Operation(
        "attach",
        "GET /api/chat/{id}/stream",
        "The live message from its first part, and on; or that of one turn, which may be over.",
        {200: None, 204: None},
        AttachQuery,
        streams=Chunk,
    ),
)
