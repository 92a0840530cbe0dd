"""Operations on runs: prompts, continuing, stopping, status, the queue, answers from people, and streams."""

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
"""Limit for one prompt. Each part becomes a row."""

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
            raise InvalidInput("a prompt needs either text or parts")
        given = super().arguments()
        return {"prompt": given.pop("text" if self.parts is None else "parts"), **given}

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        prompt = arguments["prompt"]
        return super().of({**arguments, **({"text": prompt} if isinstance(prompt, str) else {"parts": list(prompt)})})


class ContinueBody(Arguments):
    """Resume the newest turn where it stopped (``on``), or run its prompt again (``again``).

    With ``queue``, only resume a paused queue.
    """

    mode: Literal["on", "again"] = "on"
    queue: bool = False


class AbortBody(Arguments):
    """The fate of the queue: it stays, paused (``stay``), or continues (``go_on``)."""

    queue: Literal["stay", "go_on"] = "stay"


class QueuedBody(Arguments):
    """The new text of a queued message."""

    text: Annotated[str, Meta(max_length=10_000_000)]


class MoveBody(Arguments):
    """The message before which it is sent; null moves it to the end."""

    before: str | None = None


class PauseBody(Arguments):
    """The state of the queue: paused until a person resumes it, or running."""

    paused: bool = True


class ApprovalBody(Arguments):
    """A person's decision on an approval request."""

    decision: Literal["once", "session", "project", "deny"]
    reason: Annotated[str, Meta(max_length=10_000)] | None = None
    pattern: Annotated[str, Meta(max_length=100_000)] | None = None


class AllApprovalsBody(Arguments):
    """A person's decision on all pending approval requests, or on the listed ones."""

    decision: Literal["once", "session", "project", "deny"]
    reason: Annotated[str, Meta(max_length=10_000)] | None = None
    approval_ids: Annotated[list[Annotated[str, Meta(max_length=256)]], Meta(max_length=1_000)] | None = None


class AnswerBody(Arguments):
    """A person's answer to a question; null is a valid answer."""

    output: Any | UnsetType = UNSET

    def arguments(self) -> dict[str, Any]:
        if self.output is UNSET:
            raise InvalidInput("an answer needs an output")
        return super().arguments()


class AttachQuery(Arguments):
    """With ``replay``, the stream starts with the first part of the live message, otherwise with new chunks.
    ``message_id`` selects the turn that has this message, which may be over. ``after``, or the header
    ``Last-Event-ID``, is the id of the last event the client has: the stream continues with the next one.
    """

    replay: bool = True
    message_id: str | None = None
    after: str | None = None


class ChatBody(msgspec.Struct, rename="camel"):
    """The request of the AI SDK v6 transport. Messages stay raw: they are the client's copy; the store has its own."""

    id: str
    messages: list[msgspec.Raw]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    model: ModelName | None = None
    agent: str | None = None


OPERATIONS: Final = (
    Operation("submit", "POST …/prompt", "Send a prompt.", {202: SubmissionShape}, PromptBody),
    Operation(
        "continue_turn",
        "POST …/continue",
        "Resume the newest turn, or the queue.",
        {202: SubmissionShape},
        ContinueBody,
        optional=True,
    ),
    Operation(
        "abort",
        "POST …/abort",
        "Stop the running turn, or deny pending requests; the queue is paused.",
        {202: Aborted},
        AbortBody,
        optional=True,
    ),
    Operation(
        "get_status",
        "GET …/status",
        "Get the status of a session; as a stream, the current status and each change.",
        {200: Status},
        streams=Status,
        watched_by="watch_status",
    ),
    Operation("queue", "GET …/queue", "List the queued messages.", {200: QueueShape}),
    Operation("cancel_queued", "DELETE …/queue/{message_id}", "Remove a message from the queue.", {204: None}),
    Operation("edit_queued", "PATCH …/queue/{message_id}", "Edit a queued message.", {204: None}, QueuedBody),
    Operation(
        "move_queued",
        "POST …/queue/{message_id}/move",
        "Move a queued message.",
        {204: None},
        MoveBody,
        optional=True,
    ),
    Operation("send_queued", "POST …/queue/{message_id}/send", "Send a queued message now.", {202: SubmissionShape}),
    Operation("pause_queue", "POST …/queue/pause", "Pause or resume the queue.", {204: None}, PauseBody, optional=True),
    Operation(
        "answer",
        "POST …/approvals/{approval_id}",
        "Answer an approval request.",
        {200: Remaining},
        ApprovalBody,
        found_first=True,
    ),
    Operation(
        "answer_all",
        "POST …/approvals",
        "Answer all pending approval requests.",
        {200: Remaining},
        AllApprovalsBody,
        found_first=True,
    ),
    Operation(
        "answer_question",
        "POST …/answers/{tool_call_id}",
        "Answer a question of the model.",
        {200: Remaining},
        AnswerBody,
        found_first=True,
    ),
)
STREAM_OPERATIONS: Final = (
    Operation(
        "chat",
        "POST /api/chat",
        "Chat with the protocol of the AI SDK v6.",
        {200: None},
        ChatBody,
        streams=Chunk,
        refusals=(404, 409),
        served=True,
    ),
    Operation(
        "attach",
        "GET /api/chat/{id}/stream",
        "Follow the live message from its first part, or the message of one turn, which may be over.",
        {200: None, 204: None},
        AttachQuery,
        streams=Chunk,
    ),
)
