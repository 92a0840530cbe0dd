"""Operations on history: going back and aside, making room, and looking at what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.compaction.context import ContextReport
from clew.errors import InvalidInput
from clew.fit import fit_json
from clew.fronts.operations.operation import Arguments, Nothing, Operation, PageSize
from clew.fronts.operations.results import MessageList, ModelName, ReflogList, RewoundShape, SessionShape
from clew.fronts.operations.runs import Parts
from clew.history.compactions import CompactionReport
from clew.history.report import RequestReport, TurnReport
from clew.history.tree import TreeView
from clew.runtime.compact import Compacted

__all__ = ["OPERATIONS"]


class RewindBody(Arguments):
    """Which user message to go back to, and what for."""

    message_id: str
    mode: Literal["resend", "edit"] | None = None
    text: str | None = None
    run: bool | None = None
    restore_files: bool | None = None
    parts: Parts | None = None
    model: ModelName | None = None
    agent: str | None = None
    client_message_id: str | None = None
    metadata: dict[str, Any] | None = None


class HeadBody(Arguments):
    """The turn to go to; null is the empty beginning."""

    turn_id: str | UnsetType | None = UNSET

    def arguments(self) -> dict[str, Any]:
        if self.turn_id is UNSET:
            raise InvalidInput("turn_id is missing; null is the empty beginning")
        return super().arguments()


class BranchBody(Arguments):
    """Where a branch leaves, and what is different in it."""

    from_message_id: str
    metadata: dict[str, Any] | None = None
    model: ModelName | None = None
    start_message_id: str | None = None


class ForkBody(Arguments):
    """What a fork is called, and its first prompt, which runs."""

    label: str | None = None
    text: str | None = None


class CompactBody(Arguments):
    """What a summary should not leave out."""

    focus: str | None = None


class ContextQuery(Arguments):
    """Whose window it is held against; the session's own model unless said."""

    model: str | None = None

    def arguments(self) -> dict[str, Any]:
        # A model with a variant has more than one word; it comes as JSON.
        if self.model is None or not self.model.startswith("{"):
            return super().arguments()
        try:
            return {"model": fit_json(self.model, dict[str, Any])}
        except msgspec.DecodeError as error:
            raise InvalidInput(f"not a model: {error}") from error

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        model = arguments.get("model")
        return cls(model if model is None or isinstance(model, str) else msgspec.json.encode(model).decode())


class RequestQuery(Arguments):
    """Which step; the last one unless said."""

    step: Annotated[int, Meta(ge=0)] | None = None


class TreeQuery(Arguments):
    """A page of it; all of it unless said."""

    limit: PageSize | None = None
    cursor: str | None = None


class ReflogQuery(Arguments):
    """A page of it, before the move of that number; all of it unless said."""

    limit: PageSize | None = None
    before: Annotated[int, Meta(ge=1)] | None = None


OPERATIONS: Final = (
    Operation(
        "rewind", "POST …/rewind", "Go back to a user message.", {200: RewoundShape, 202: RewoundShape}, RewindBody
    ),
    Operation("unrewind", "POST …/unrewind", "Undo the newest rewind.", {200: RewoundShape}, Nothing, optional=True),
    Operation("set_head", "POST …/head", "Go to any turn.", {200: RewoundShape}, HeadBody),
    Operation("reflog", "GET …/reflog", "Moves of the head, newest first.", {200: ReflogList}, ReflogQuery),
    Operation("branch", "POST …/branch", "A session that starts as a copy.", {201: SessionShape}, BranchBody),
    Operation("tree", "GET …/tree", "Its turns and branches.", {200: TreeView}, TreeQuery),
    Operation("compact", "POST …/compact", "Summarise the older turns.", {200: Compacted}, CompactBody, optional=True),
    Operation("prune", "POST …/prune", "Stubs for older outputs.", {200: Compacted}, Nothing, optional=True),
    Operation("compaction", "GET …/compactions/{message_id}", "What a compaction summarised.", {200: CompactionReport}),
    Operation("context", "GET …/context", "How large the next request would be.", {200: ContextReport}, ContextQuery),
    Operation("turn", "GET /api/turns/{id}", "A turn with its steps.", {200: TurnReport}),
    Operation("fork", "POST /api/turns/{id}/fork", "A branch at a turn.", {201: SessionShape}, ForkBody, optional=True),
    Operation(
        "request",
        "GET /api/turns/{id}/request",
        "What the model was sent at a step.",
        {200: RequestReport},
        RequestQuery,
    ),
    Operation(
        "turn_messages",
        "GET /api/turns/{id}/messages",
        "The messages of one turn, on the line or not.",
        {200: MessageList},
    ),
)
