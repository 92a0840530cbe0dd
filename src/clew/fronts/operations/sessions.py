"""Operations on sessions: listing, creating, reading, changing, deleting; messages, permissions and transfer."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.errors import InvalidInput
from clew.fronts.operations.operation import Arguments, Nothing, Operation, PageSize
from clew.fronts.operations.results import (
    ExplainedShape,
    KeptRules,
    MessageList,
    ModelName,
    RuleList,
    SessionPage,
    SessionShape,
)
from clew.interop import ExportFormat
from clew.interop.programs.import_report import Arrival, Program
from clew.interop.session_file import MAX_FILE_BYTES
from clew.permissions.rules import MAX_PATTERN_CHARS, MAX_RULES
from clew.session.history.views import FileList
from clew.store.base import SearchPage
from clew.transcript.message import Message
from clew.transcript.rule import KeptRule, Mode

__all__ = ["OPERATIONS", "PERMISSION_OPERATIONS", "TRANSFER_OPERATIONS"]

# Percent-encoded, it still fits into a request head.
MAX_TARGET_CHARS: Final = 4_096


class NewSession(Arguments):
    """The properties of a new session."""

    agent: str | None = None
    workspace_root: str | None = None
    model: ModelName | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    system_prompt: str | None = None
    mode: Mode | None = None
    alias: str | None = None


class SessionPatch(Arguments):
    """The properties of a session to change. ``agent`` is listed only to be refused."""

    title: str | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    model: ModelName | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    agent: Any = UNSET

    def arguments(self) -> dict[str, Any]:
        if self.agent is not UNSET:
            raise InvalidInput("the agent of a session cannot be changed; choose another one per prompt")
        given = super().arguments()
        # The facade takes None as not given, and an empty title as none.
        return given if self.title is not None else {**given, "title": ""}


class ListQuery(Arguments):
    """Filters for sessions. ``q`` is searched for in titles; ``pinned`` lists only pinned ones."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str | None = None
    agent: str | None = None
    workspace: str | None = None
    parent: str | None = None
    q: str | None = None
    kind: Literal["chat", "subagent", "any"] = "chat"
    archived: bool = False
    ephemeral: bool = False
    pinned: bool = False


class DeleteQuery(Arguments):
    """With ``force``, a running turn is aborted first."""

    force: bool = False


class MessagesQuery(Arguments):
    """Filters for messages. ``before`` pages back from a message."""

    view: Literal["visible", "all", "model"] = "visible"
    limit: PageSize | None = None
    before: str | None = None


class FilesQuery(Arguments):
    """The number of turns to include, from the newest or from a cursor; by default all of the line."""

    limit: PageSize | None = None
    cursor: str | None = None


class NewRule(msgspec.Struct):
    """A rule as a client sends it. ``source`` is ignored; ``pinned`` is listed only to be refused."""

    permission: str
    pattern: Annotated[str, Meta(max_length=MAX_PATTERN_CHARS)]
    action: Literal["allow", "deny", "ask"]
    source: Any = None
    added_at: Annotated[int, Meta(ge=0)] | None = None
    pinned: bool | None = None


class RulesBody(Arguments):
    """All rules the session is to have."""

    rules: Annotated[list[NewRule], Meta(max_length=MAX_RULES)]

    def arguments(self) -> dict[str, Any]:
        rules = [msgspec.structs.asdict(rule).items() for rule in self.rules]
        # A field that was not sent must stay absent.
        return {"rules": [{name: value for name, value in rule if value is not None} for rule in rules]}


class RulesQuery(Arguments):
    """The scope of the rules: those in force for a session, a project's, or an agent's; by default every project's."""

    scope: Literal["session", "project", "agent"] | None = None
    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None
    agent: str | None = None


class AddedRule(Arguments):
    """A rule to add, and its scope."""

    scope: Literal["session", "project"]
    permission: str
    pattern: Annotated[str, Meta(max_length=MAX_PATTERN_CHARS)]
    action: Literal["allow", "deny", "ask"]
    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None


class RevokeQuery(Arguments):
    """The rule to revoke, and where to find it."""

    rule_id: Annotated[str, Meta(min_length=1, max_length=128)] = msgspec.field(name="id")
    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None


class ExplainQuery(Arguments):
    """A possible call: a tool, and the path, command line, URL or name it would be given."""

    tool: Annotated[str, Meta(min_length=1, max_length=128)]
    target: Annotated[str, Meta(max_length=MAX_TARGET_CHARS)] = ""


class ExportQuery(Arguments):
    """The format, and whether to redact. ``hidden``: include messages that left the conversation, if it shows one."""

    format: ExportFormat = "json"
    redact: bool = True
    hidden: bool = False


class ImportQuery(Arguments):
    """The workspace of the session; the one named in the file is ignored."""

    workspace_root: str | None = msgspec.field(default=None, name="workspace")


class ProgramQuery(Arguments):
    """The program the session comes from, and its workspace here."""

    program: Program
    workspace_root: str | None = msgspec.field(default=None, name="workspace")


class SearchParameters(Arguments):
    """The search: words, or a phrase in double quotes."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: str | None = None
    session_id: str | None = msgspec.field(default=None, name="session")
    wait: bool = False


OPERATIONS: Final = (
    Operation(
        "list_sessions",
        "GET /api/sessions",
        "List sessions, newest first.",
        {200: SessionPage},
        ListQuery,
        refusals=(400, 404),
    ),
    Operation(
        "create_session",
        "POST /api/sessions",
        "Create an empty session.",
        {201: SessionShape},
        NewSession,
        refusals=(409,),
    ),
    Operation("delete_session", "DELETE …", "Delete a session permanently.", {204: None}, DeleteQuery),
    Operation("get_session", "GET …", "Get a session.", {200: SessionShape}),
    Operation("patch_session", "PATCH …", "Change a session.", {200: SessionShape}, SessionPatch, found_first=True),
    Operation("messages", "GET …/messages", "List the messages of a session.", {200: MessageList}, MessagesQuery),
    Operation(
        "accept_message",
        "POST …/messages/{message_id}/accept",
        "Accept a damaged message in its current state.",
        {200: Message},
        Nothing,
    ),
    Operation("files", "GET …/files", "List the files a session has read and changed.", {200: FileList}, FilesQuery),
)
PERMISSION_OPERATIONS: Final = (
    Operation("permissions", "GET …/permissions", "List the session's own rules.", {200: RuleList}),
    Operation("set_permissions", "PUT …/permissions", "Replace the session's own rules.", {200: RuleList}, RulesBody),
    Operation(
        "rules",
        "GET /api/rules",
        "List rules in force, with their ids.",
        {200: KeptRules},
        RulesQuery,
        refusals=(400, 404),
    ),
    Operation("add_rule", "POST /api/rules", "Add a rule.", {201: KeptRule}, AddedRule, refusals=(404,)),
    Operation("revoke_rule", "DELETE /api/rules", "Revoke a rule.", {204: None}, RevokeQuery, refusals=(400, 404)),
    Operation(
        "explain_permission",
        "GET …/permissions/explain",
        "Explain the permission decision about a call.",
        {200: ExplainedShape},
        ExplainQuery,
        found_first=True,
    ),
)
TRANSFER_OPERATIONS: Final = (
    Operation("export", "GET …/export", "Export a session as a file.", {200: bytes}, ExportQuery, media="*/*"),
    # A session may hold more files than one message: every export must be importable.
    Operation(
        "import_session",
        "POST /api/import",
        "Import an exported session.",
        {201: SessionShape},
        dict[str, Any],
        also_query=ImportQuery,
        limit=MAX_FILE_BYTES,
        raw="data",
    ),
    Operation(
        "import_from",
        "POST /api/import-from",
        "Import a session file of another program.",
        {200: Arrival},
        dict[str, Any],
        also_query=ProgramQuery,
        limit=MAX_FILE_BYTES,
        raw="data",
    ),
    Operation(
        "search",
        "GET /api/search",
        "Search messages, including hidden ones.",
        {200: SearchPage},
        SearchParameters,
        refusals=(400, 404),
    ),
)
