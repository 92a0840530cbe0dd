"""Operations on sessions: list, make, look at, change, remove; what is in one, what it allows, and it as a file."""

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
from clew.history.files import FileList
from clew.interop.programs.arrival import Arrival, Program
from clew.interop.session_file import MAX_FILE_BYTES
from clew.permissions.rules import MAX_PATTERN_CHARS, MAX_RULES
from clew.runtime.rule_book import KeptRule
from clew.store.base import SearchPage
from clew.transcript.message import Message
from clew.transcript.rule import Mode

__all__ = ["OPERATIONS", "PERMISSION_OPERATIONS", "TRANSFER_OPERATIONS"]

# Written with escapes it still fits the head of a request.
MAX_TARGET_CHARS: Final = 4_096


class NewSession(Arguments):
    """What a new session may be given."""

    agent: str | None = None
    workspace_root: str | None = None
    model: ModelName | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    system_prompt: str | None = None
    mode: Mode | None = None
    alias: str | None = None


class SessionPatch(Arguments):
    """What of a session can be changed. ``agent`` is named here only to be refused."""

    title: str | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    model: ModelName | UnsetType = UNSET
    mode: Mode | UnsetType = UNSET
    pinned: bool | UnsetType = UNSET
    agent: Any = UNSET

    def arguments(self) -> dict[str, Any]:
        if self.agent is not UNSET:
            raise InvalidInput("the agent of a session never changes; name another for one prompt")
        given = super().arguments()
        # No title is an empty one to the facade, which takes None for not given.
        return given if self.title is not None else {**given, "title": ""}


class ListQuery(Arguments):
    """Which sessions are listed. ``q`` is looked for in titles; ``pinned`` leaves out all that are not."""

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
    """``force`` aborts what runs."""

    force: bool = False


class MessagesQuery(Arguments):
    """Which messages are shown. ``before`` pages back from one."""

    view: Literal["visible", "all", "model"] = "visible"
    limit: PageSize | None = None
    before: str | None = None


class FilesQuery(Arguments):
    """Of how many turns, from the newest back or from where a page ended; of all of the line unless said."""

    limit: PageSize | None = None
    cursor: str | None = None


class NewRule(msgspec.Struct):
    """A rule as a client sends it. ``source`` is not believed; ``pinned`` is named here only to be refused."""

    permission: str
    pattern: Annotated[str, Meta(max_length=MAX_PATTERN_CHARS)]
    action: Literal["allow", "deny", "ask"]
    source: Any = None
    added_at: Annotated[int, Meta(ge=0)] | None = None
    pinned: bool | None = None


class RulesBody(Arguments):
    """All the rules the session is to have."""

    rules: Annotated[list[NewRule], Meta(max_length=MAX_RULES)]

    def arguments(self) -> dict[str, Any]:
        rules = [msgspec.structs.asdict(rule).items() for rule in self.rules]
        # A time that was not sent is not one that is none.
        return {"rules": [{name: value for name, value in rule if value is not None} for rule in rules]}


class RulesQuery(Arguments):
    """Whose rules: those in force for a session, a project's, an agent's; nobody named: every project's."""

    scope: Literal["session", "project", "agent"] | None = None
    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None
    agent: str | None = None


class AddedRule(Arguments):
    """A rule to add, and whose it is to be."""

    scope: Literal["session", "project"]
    permission: str
    pattern: Annotated[str, Meta(max_length=MAX_PATTERN_CHARS)]
    action: Literal["allow", "deny", "ask"]
    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None


class RevokeQuery(Arguments):
    """Which rule is taken away, and where it is looked for."""

    rule_id: Annotated[str, Meta(min_length=1, max_length=128)] = msgspec.field(name="id")
    session_id: str | None = msgspec.field(default=None, name="session")
    workspace: str | None = None


class ExplainQuery(Arguments):
    """A call that somebody may make: a tool, and the path, command line, URL or name it would be given."""

    tool: Annotated[str, Meta(min_length=1, max_length=128)]
    target: Annotated[str, Meta(max_length=MAX_TARGET_CHARS)] = ""


class ExportQuery(Arguments):
    """In which form, and what is taken out of it. ``hidden``: also what left the conversation, in md and html."""

    format: Literal["json", "jsonl", "md", "html", "ai-sdk", "openai", "claude-code", "pi"] = "json"
    redact: bool = True
    hidden: bool = False


class ImportQuery(Arguments):
    """The folder the session is to work in; the one that the file names is not believed."""

    workspace_root: str | None = msgspec.field(default=None, name="workspace")


class ProgramQuery(Arguments):
    """Whose session it is, and the folder it is to work in."""

    program: Program
    workspace_root: str | None = msgspec.field(default=None, name="workspace")


class SearchParameters(Arguments):
    """What to look for: words, or a phrase between double quotes."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    limit: Annotated[int, Meta(ge=1, le=100)] = 20
    cursor: str | None = None
    session_id: str | None = msgspec.field(default=None, name="session")
    wait: bool = False


OPERATIONS: Final = (
    Operation(
        "list_sessions",
        "GET /api/sessions",
        "Sessions, newest first.",
        {200: SessionPage},
        ListQuery,
        refusals=(400, 404),
    ),
    Operation(
        "create_session",
        "POST /api/sessions",
        "A new, empty session.",
        {201: SessionShape},
        NewSession,
        refusals=(409,),
    ),
    Operation("delete_session", "DELETE …", "Remove it for good.", {204: None}, DeleteQuery),
    Operation("get_session", "GET …", "A session.", {200: SessionShape}),
    Operation("patch_session", "PATCH …", "Change what is given.", {200: SessionShape}, SessionPatch, found_first=True),
    Operation("messages", "GET …/messages", "Its messages.", {200: MessageList}, MessagesQuery),
    Operation(
        "accept_message",
        "POST …/messages/{message_id}/accept",
        "Accept a damaged message as it is now.",
        {200: Message},
        Nothing,
    ),
    Operation("files", "GET …/files", "The files it has read and changed.", {200: FileList}, FilesQuery),
)
PERMISSION_OPERATIONS: Final = (
    Operation("permissions", "GET …/permissions", "The session's own rules.", {200: RuleList}),
    Operation("set_permissions", "PUT …/permissions", "Replace the session's own rules.", {200: RuleList}, RulesBody),
    Operation(
        "rules",
        "GET /api/rules",
        "Rules in force, with their ids.",
        {200: KeptRules},
        RulesQuery,
        refusals=(400, 404),
    ),
    Operation("add_rule", "POST /api/rules", "Add a rule.", {201: KeptRule}, AddedRule, refusals=(404,)),
    Operation("revoke_rule", "DELETE /api/rules", "Take a rule away.", {204: None}, RevokeQuery, refusals=(400, 404)),
    Operation(
        "explain_permission",
        "GET …/permissions/explain",
        "What would be decided about a call, and why.",
        {200: ExplainedShape},
        ExplainQuery,
        found_first=True,
    ),
)
TRANSFER_OPERATIONS: Final = (
    Operation("export", "GET …/export", "A session as a file.", {200: bytes}, ExportQuery, media="*/*"),
    # A session may hold more files than one message: what was exported must come in again.
    Operation(
        "import_session",
        "POST /api/import",
        "Take in a session that was exported.",
        {201: SessionShape},
        dict[str, Any],
        also_query=ImportQuery,
        limit=MAX_FILE_BYTES,
        raw="data",
    ),
    Operation(
        "import_from",
        "POST /api/import-from",
        "Take in a session of another program, from the bytes of its file.",
        {200: Arrival},
        dict[str, Any],
        also_query=ProgramQuery,
        limit=MAX_FILE_BYTES,
        raw="data",
    ),
    Operation(
        "search",
        "GET /api/search",
        "Messages that hold these words, hidden ones too.",
        {200: SearchPage},
        SearchParameters,
        refusals=(400, 404),
    ),
)
