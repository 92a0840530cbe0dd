"""The results of operations: sessions, rules and moves as every front shows them, lists, stream frames, problems.

A command's JSON and an HTTP response are the same. Reports are the engine's own values. Together they are the schemas
of the OpenAPI document, under the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.live.base import Status
from clew.providers.base import ModelListing
from clew.session.api.operations import ReplicaShape
from clew.session.api.prompts import SavedPrompt
from clew.session.history.file_values import FilesRestored
from clew.session.history.tree import ReflogEntry
from clew.store.base import Damage
from clew.tools.mcp_tools import ServerState
from clew.transcript.message import Message
from clew.transcript.metadata import PausedBy
from clew.transcript.rule import KeptRule, Mode
from clew.transcript.session import Model, Session, Spend
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.signature import Scheme
from clew.triggers.values.webhook import Webhook

if TYPE_CHECKING:
    from clew.session.history.rewind import Rewound

ModelName = Annotated[str, Meta(description="provider/model[:variant]", examples=["demo/echo"])] | dict[str, Any]
"""A model in a request body: ``provider/model`` with an optional ``:variant``, or its parts."""

Action = Literal["allow", "ask", "deny"]
Scope = Literal["manifest", "session", "project", "mode"]


class Problem(msgspec.Struct, frozen=True):
    """An error: ``code`` is stable, ``detail`` is one sentence for people; the ids it is about are extra fields."""

    type: str
    title: str
    status: int
    detail: str
    code: str


class Part(msgspec.Struct, frozen=True):
    """A part of a message, in the AI SDK's own format; other fields depend on its type."""

    type: str


class Chunk(msgspec.Struct, frozen=True):
    """A chunk of the AI SDK's stream; other fields depend on its type. The last frame is ``[DONE]``."""

    type: str


class EventFrame(msgspec.Struct, frozen=True):
    """An event of this host; other fields depend on its type."""

    type: str


class Health(msgspec.Struct, frozen=True):
    """The version of clew and the kind of its store. ``login``: whether clients authenticate by a token of clew, or by
    the host that clew is part of, for example with a cookie.
    """

    version: str
    store: str
    login: Literal["token", "host"]


class ServerShape(msgspec.Struct, frozen=True):
    """Information about this server. ``workspace_root`` is the folder it was started in, null if that is gone.

    ``chunk_durable``: chunks are stored before they are shown. ``search``: the store supports search. ``losses`` lists
    acknowledged data that is missing from the store, until someone accepts the loss. ``owner`` is the authenticated
    owner; null for the administrator. Without ``triggers`` this is the server of a chat, which fires no schedules and
    ends with it.
    """

    version: str
    store: str
    workspace_root: str | None
    chunk_durable: bool
    search: bool
    losses: tuple[Damage, ...] = ()
    owner: str | None = None
    triggers: bool = True


class ReplicaList(msgspec.Struct, frozen=True):
    replicas: list[ReplicaShape]


class McpServerList(msgspec.Struct, frozen=True):
    """MCP servers, by name."""

    servers: list[ServerState]


class ModelList(msgspec.Struct, frozen=True):
    models: list[ModelListing]


class FileNames(msgspec.Struct, frozen=True):
    """Paths in a workspace, best match first."""

    files: list[str]


class PromptList(msgspec.Struct, frozen=True):
    """Saved prompts, by name."""

    prompts: list[SavedPrompt]


class SessionShape(msgspec.Struct, frozen=True):
    """A session as clients see it: fields stored in its metadata are top-level, and its own rules are omitted."""

    id: str
    agent: str
    title: str | None
    label: str | None
    workspace_root: str | None
    model: Model
    parent_id: str | None
    parent_message_id: str | None
    kind: Literal["chat", "subagent"]
    head_turn_id: str | None
    metadata: dict[str, Any]
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cache_read: int
    cache_write: int
    total_tokens: int
    cost_usd: float
    created_at: int
    updated_at: int
    archived_at: int | None
    owner: str | None
    alias: str | None
    status: Status
    mode: Mode
    spend: Spend
    pinned: bool


# Names in the OpenAPI document, which are stable: this page is the engine's ``SessionList``.
class SessionPage(msgspec.Struct, frozen=True):
    """Sessions, newest first; ``next_cursor`` is null on the last page."""

    sessions: Sequence[SessionShape]
    next_cursor: str | None


# A complete list without a cursor; not the engine's ``SessionList``.
class SessionList(msgspec.Struct, frozen=True):
    sessions: Sequence[SessionShape]


class MessageList(msgspec.Struct, frozen=True):
    messages: list[Message]


class QueueShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The queued messages, the next one first; ``paused``, as in a status, while none will be sent."""

    messages: list[Message]
    paused: bool = False
    paused_by: PausedBy | Literal["waiting"] | None = None


class ReflogList(msgspec.Struct, frozen=True):
    """Moves of the head, newest first."""

    moves: list[ReflogEntry]


class RewoundShape(msgspec.Struct, frozen=True):
    """The new head, and the messages that left the line; with ``message_id`` and ``queued`` if the rewind runs, and
    with ``files`` if some were restored."""

    head_turn_id: str | None
    hidden: tuple[str, ...]
    draft: str | None
    message_id: str | UnsetType = UNSET
    queued: bool | UnsetType = UNSET
    files: FilesRestored | UnsetType = UNSET


class SubmissionShape(msgspec.Struct, frozen=True):
    """An accepted prompt."""

    message_id: str
    queued: bool


class Aborted(msgspec.Struct, frozen=True):
    """True if there was something to stop."""

    aborted: bool


class Remaining(msgspec.Struct, frozen=True):
    """The number of pending requests of the step; at 0 the run has resumed."""

    remaining: int


class RuleShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """A permission rule with its scope.

    ``unknown``: it names no known tool, and applies to every tool if it denies or asks.
    """

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]
    source: Literal["manifest", "session", "project", "mode"]
    added_at: int | None
    pinned: bool
    unknown: bool = False


class RuleList(msgspec.Struct, frozen=True):
    rules: Sequence[RuleShape]


class KeptRules(msgspec.Struct, frozen=True):
    """Rules with their ids, nearest scope first."""

    rules: list[KeptRule]


class ConsideredShape(msgspec.Struct, frozen=True):
    """A rule that matched but did not decide, and the reason."""

    rule: RuleShape
    scope: Scope
    why: str


class SubjectShape(msgspec.Struct, frozen=True):
    """One thing a call would touch: a path, a host, a command or a redirect of a command line."""

    permission: str
    kind: Literal["path", "command", "host", "plain"]
    shown: str
    action: Action
    rule: RuleShape | None
    scope: Scope | None
    reason: str
    considered: Sequence[ConsideredShape]


class ExplainedShape(msgspec.Struct, frozen=True):
    """The decision about a call, the rule and scope that made it, and the other rules considered."""

    action: Action
    rule: RuleShape | None
    scope: Scope | None
    considered: Sequence[ConsideredShape]
    reason: str
    subjects: Sequence[SubjectShape]


class ScheduleList(msgspec.Struct, frozen=True):
    """All schedules, by id."""

    schedules: tuple[Schedule, ...]


class WebhookShape(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as clients see it. The secret is included only when it was just created.

    Deliveries are addressed to its ``key``, which is its name if it has no owner.
    """

    name: str
    key: str
    owner: str | None
    scheme: Scheme
    prompt: str | None
    paused: bool
    routing: Routing
    created_at: int
    secret: str | UnsetType = UNSET


class WebhookList(msgspec.Struct, frozen=True):
    """All webhooks, by name; without their secrets."""

    webhooks: Sequence[WebhookShape]


_STATUS_INDEX: Final = SessionShape.__struct_fields__.index("status")
_session_fields: Final = attrgetter(*(field for field in SessionShape.__struct_fields__ if field != "status"))


def show_session(session: Session, status: Status) -> SessionShape:
    shown = _session_fields(session)
    return SessionShape(*(*shown[:_STATUS_INDEX], status, *shown[_STATUS_INDEX:]))


def show_rewound(rewound: Rewound) -> RewoundShape:
    files = UNSET if rewound.files is None else rewound.files
    moved = RewoundShape(rewound.head_turn_id, tuple(rewound.hidden), rewound.draft, files=files)
    submission = rewound.submission
    if submission is None:
        return moved
    return msgspec.structs.replace(moved, message_id=submission.message_id, queued=submission.queued)


def show_webhook(webhook: Webhook, *, secret: bool = False) -> WebhookShape:
    shown = {field: getattr(webhook, field) for field in WebhookShape.__struct_fields__}
    return WebhookShape(**{**shown, "secret": webhook.secret if secret else UNSET})
