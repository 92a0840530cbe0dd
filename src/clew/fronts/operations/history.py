"""Operations on history: rewinding, branching, compacting, and inspecting requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.compaction.context import ContextReport
from clew.convert import convert_json
from clew.errors import InvalidInput
from clew.fronts.operations.operation import Arguments, Nothing, Operation, PageSize
from clew.fronts.operations.results import MessageList, ModelName, ReflogList, RewoundShape, SessionShape
from clew.fronts.operations.runs import Parts
from clew.session.context.compact import Compacted
from clew.session.history.file_values import ChangesReport, FileDiff, FilesCompared, FilesRestored, RestorePreview
from clew.session.history.report import CompactionReport, RequestReport, TurnReport
from clew.session.history.tree import TreeView

__all__ = ["OPERATIONS"]


Files = Literal["keep", "restore", "only"]


class RewindBody(Arguments):
    """The user message to go back to, and what to do there."""

    message_id: str
    mode: Literal["resend", "edit"] | None = None
    text: str | None = None
    run: bool | None = None
    files: Files | None = None
    force: bool | None = None
    paths: list[str] | None = None
    restore_files: bool | None = None
    parts: Parts | None = None
    model: ModelName | None = None
    agent: str | None = None
    client_message_id: str | None = None
    metadata: dict[str, Any] | None = None


class HeadBody(Arguments):
    """The turn to go to; null is the empty start. And what happens to files."""

    turn_id: str | UnsetType | None = UNSET
    files: Files | None = None
    force: bool | None = None
    paths: list[str] | None = None

    def arguments(self) -> dict[str, Any]:
        if self.turn_id is UNSET:
            raise InvalidInput("turn_id is missing; null means the empty start")
        return super().arguments()


class UnrewindBody(Arguments):
    """The treatment of files: ``restore`` takes them along, ``only`` undoes the newest restore of files alone."""

    files: Files | None = None
    force: bool | None = None
    paths: list[str] | None = None


class RestoreQuery(Arguments):
    """The state to restore: of a user message, of the end of a turn, or one of the named ones."""

    message_id: str | None = None
    turn_id: str | None = None
    to: Literal["start", "unrewind", "undo"] | None = None


class ChangesQuery(Arguments):
    """The turn, or the step of a turn; by default the whole session."""

    turn_id: str | None = None
    step: Annotated[int, Meta(ge=0)] | None = None


class ChangeDiffQuery(Arguments):
    """The file, and the turn or step; by default the whole session."""

    path: str
    turn_id: str | None = None
    step: Annotated[int, Meta(ge=0)] | None = None


class CompareQuery(Arguments):
    """The branch, or the session that this one is a branch of, and the file whose difference is shown."""

    other_id: str
    path: str | None = None


class RevertBody(Arguments):
    """The file, or one hunk of its differences by its header; of a turn or a step, by default of the whole session."""

    path: str
    hunk: str | None = None
    turn_id: str | None = None
    step: Annotated[int, Meta(ge=0)] | None = None
    force: bool | None = None


class BranchBody(Arguments):
    """The message where a branch starts, and what differs in it."""

    from_message_id: str
    metadata: dict[str, Any] | None = None
    model: ModelName | None = None
    start_message_id: str | None = None
    worktree: str | None = None


class ForkBody(Arguments):
    """The label of a fork, and its first prompt, which is run."""

    label: str | None = None
    text: str | None = None


class CompactBody(Arguments):
    """The focus of the summary: content it should keep."""

    focus: str | None = None


class ContextQuery(Arguments):
    """The model whose context window is used; by default the session's own."""

    model: str | None = None

    def arguments(self) -> dict[str, Any]:
        # A model with a variant is an object; it is sent as JSON.
        if self.model is None or not self.model.startswith("{"):
            return super().arguments()
        try:
            return {"model": convert_json(self.model, dict[str, Any])}
        except msgspec.DecodeError as error:
            raise InvalidInput(f"not a model: {error}") from error

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Self:
        model = arguments.get("model")
        return cls(model if model is None or isinstance(model, str) else msgspec.json.encode(model).decode())


class RequestQuery(Arguments):
    """The step; by default the last one."""

    step: Annotated[int, Meta(ge=0)] | None = None


class TreeQuery(Arguments):
    """A page of the tree; by default all of it."""

    limit: PageSize | None = None
    cursor: str | None = None


class ReflogQuery(Arguments):
    """A page of the reflog, before the move with this number; by default all of it."""

    limit: PageSize | None = None
    before: Annotated[int, Meta(ge=1)] | None = None


OPERATIONS: Final = (
    Operation(
        "rewind", "POST …/rewind", "Go back to a user message.", {200: RewoundShape, 202: RewoundShape}, RewindBody
    ),
    Operation(
        "unrewind", "POST …/unrewind", "Undo the latest rewind.", {200: RewoundShape}, UnrewindBody, optional=True
    ),
    Operation(
        "preview_restore", "GET …/restore", "Show what restoring files would do.", {200: RestorePreview}, RestoreQuery
    ),
    Operation("changes", "GET …/changes", "List the files a session changed.", {200: ChangesReport}, ChangesQuery),
    Operation("change_diff", "GET …/changes/diff", "Show the changes of one file.", {200: FileDiff}, ChangeDiffQuery),
    Operation(
        "compare_files",
        "GET …/changes/compare",
        "List the files that differ between a session and its branch.",
        {200: FilesCompared},
        CompareQuery,
    ),
    Operation(
        "revert_change", "POST …/changes/revert", "Take a file or a hunk back.", {200: FilesRestored}, RevertBody
    ),
    Operation("set_head", "POST …/head", "Move the head to any turn.", {200: RewoundShape}, HeadBody),
    Operation("reflog", "GET …/reflog", "List the moves of the head, newest first.", {200: ReflogList}, ReflogQuery),
    Operation(
        "branch", "POST …/branch", "Create a session as a copy up to a message.", {201: SessionShape}, BranchBody
    ),
    Operation("tree", "GET …/tree", "List the turns and branches of a session.", {200: TreeView}, TreeQuery),
    Operation(
        "compact",
        "POST …/compact",
        "Compact older turns into a summary.",
        {200: Compacted},
        CompactBody,
        optional=True,
    ),
    Operation(
        "prune", "POST …/prune", "Replace older tool outputs by stubs.", {200: Compacted}, Nothing, optional=True
    ),
    Operation(
        "compaction",
        "GET …/compactions/{message_id}",
        "Get a compaction and what it replaced.",
        {200: CompactionReport},
    ),
    Operation("context", "GET …/context", "Measure the next request to the model.", {200: ContextReport}, ContextQuery),
    Operation("turn", "GET /api/turns/{id}", "Get a turn with its steps.", {200: TurnReport}),
    Operation(
        "fork", "POST /api/turns/{id}/fork", "Create a branch at a turn.", {201: SessionShape}, ForkBody, optional=True
    ),
    Operation(
        "request",
        "GET /api/turns/{id}/request",
        "Get the request the model received at a step.",
        {200: RequestReport},
        RequestQuery,
    ),
    Operation(
        "turn_messages",
        "GET /api/turns/{id}/messages",
        "List the messages of a turn, including hidden ones.",
        {200: MessageList},
    ),
)
