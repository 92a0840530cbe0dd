"""What operations answer: sessions, rules and moves as every front shows them, lists, frames of streams, problems.

A command's JSON and an HTTP answer are the same. Reports are the engine's own values. All of them together are the
schemas of the OpenAPI document, under the names they have here.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from clew.engine.facade import ReplicaShape
from clew.engine.prompts import SavedPrompt
from clew.history.rewind import Rewound
from clew.history.tree import ReflogEntry
from clew.live.base import Status
from clew.providers.base import ModelListing
from clew.runtime.rule_book import KeptRule
from clew.store.base import Damage
from clew.tools.served import ServerState
from clew.transcript.message import Message
from clew.transcript.metadata import PausedBy
from clew.transcript.rule import Mode
from clew.transcript.session import Model, Session, Spend
from clew.triggers.routing import Routing
from clew.triggers.schedule import Schedule
from clew.triggers.signature import Scheme
from clew.triggers.webhook import Webhook

ModelName = Annotated[str, Meta(description="provider/model[:variant]", examples=["demo/echo"])] | dict[str, Any]
"""How a body names a model: ``provider/model``, with ``:variant`` behind it or without, or its parts."""

Action = Literal["allow", "ask", "deny"]
Scope = Literal["manifest", "session", "project", "mode"]


class Problem(msgspec.Struct, frozen=True):
    """An error: ``code`` is stable, ``detail`` one sentence for people; the ids it is about stand beside them."""

    type: str
    title: str
    status: int
    detail: str
    code: str


class Part(msgspec.Struct, frozen=True):
    """A part of a message, in the AI SDK's own shape; what else it holds depends on its type."""

    type: str


class Chunk(msgspec.Struct, frozen=True):
    """A chunk of the AI SDK's stream; what else it holds depends on its type. The last frame is ``[DONE]``."""

    type: str


class EventFrame(msgspec.Struct, frozen=True):
    """An event of this host; what else it holds depends on its type."""

    type: str


class Health(msgspec.Struct, frozen=True):
    """That clew is here, and the kind of its store. ``login``: by a token of clew's, or as the host that clew is a part
    of knows people, such as by a cookie."""

    version: str
    store: str
    login: Literal["token", "host"]


class ServerShape(msgspec.Struct, frozen=True):
    """What is running here. ``workspace_root`` is the folder it was started in, null when that is gone.

    ``chunk_durable`` says that what is streamed is stored before it is shown, ``search`` that the store can search.
    ``losses`` is what was acknowledged and is not in the store any more, until somebody has accepted it.
    ``owner`` is who asks; null for whoever sees all there is. Without ``triggers`` it is the server of a chat, which
    fires no schedules and ends when that does.
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
    """MCP servers, by their names."""

    servers: list[ServerState]


class ModelList(msgspec.Struct, frozen=True):
    models: list[ModelListing]


class FileNames(msgspec.Struct, frozen=True):
    """Paths in a workspace, the likeliest first."""

    files: list[str]


class PromptList(msgspec.Struct, frozen=True):
    """Saved prompts, by their names."""

    prompts: list[SavedPrompt]


class SessionShape(msgspec.Struct, frozen=True):
    """A session as clients see it: what lives in its metadata lifted out, its own rules left out."""

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


# Names of the OpenAPI document, which stay: this page is what the engine calls a ``SessionList``.
class SessionPage(msgspec.Struct, frozen=True):
    """Sessions, newest first; null as ``next_cursor`` on the last page."""

    sessions: Sequence[SessionShape]
    next_cursor: str | None


# All of them at once, without a cursor; not the engine's ``SessionList``.
class SessionList(msgspec.Struct, frozen=True):
    sessions: Sequence[SessionShape]


class MessageList(msgspec.Struct, frozen=True):
    messages: list[Message]


class QueueShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """The messages that wait, the next one first; ``paused``, as of a status, while nothing will fire them."""

    messages: list[Message]
    paused: bool = False
    paused_by: PausedBy | Literal["waiting"] | None = None


class ReflogList(msgspec.Struct, frozen=True):
    """Moves of the head, newest first."""

    moves: list[ReflogEntry]


class RewoundShape(msgspec.Struct, frozen=True):
    """Where the head went, and what left the line; ``message_id`` and ``queued`` of a rewind that runs."""

    head_turn_id: str | None
    hidden: tuple[str, ...]
    draft: str | None
    message_id: str | UnsetType = UNSET
    queued: bool | UnsetType = UNSET


class SubmissionShape(msgspec.Struct, frozen=True):
    """A prompt that was taken."""

    message_id: str
    queued: bool


class Aborted(msgspec.Struct, frozen=True):
    """Whether there was something to stop."""

    aborted: bool


class Remaining(msgspec.Struct, frozen=True):
    """How many requests of the step are still open; at 0 the run has started."""

    remaining: int


class RuleShape(msgspec.Struct, frozen=True, omit_defaults=True):
    """A permission rule with its scope. ``unknown``: it names no known tool, and applies to every tool if it denies or
    asks."""

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
    """A rule that matched and did not decide, and why it did not."""

    rule: RuleShape
    scope: Scope
    why: str


class SubjectShape(msgspec.Struct, frozen=True):
    """One thing the call would touch: a path, a host, one command or redirect of a line."""

    permission: str
    kind: Literal["path", "command", "host", "plain"]
    shown: str
    action: Action
    rule: RuleShape | None
    scope: Scope | None
    reason: str
    considered: Sequence[ConsideredShape]


class ExplainedShape(msgspec.Struct, frozen=True):
    """What would be decided about a call, by which rule of which scope, and what else was looked at."""

    action: Action
    rule: RuleShape | None
    scope: Scope | None
    considered: Sequence[ConsideredShape]
    reason: str
    subjects: Sequence[SubjectShape]


class ScheduleList(msgspec.Struct, frozen=True):
    """All schedules, by their ids."""

    schedules: tuple[Schedule, ...]


class WebhookShape(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as clients see it. The secret is there once, when it was made. Deliveries go to its ``key``, which is
    its name where it has no owner."""

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
    """All webhooks, by their names; without their secrets."""

    webhooks: Sequence[WebhookShape]


_STATUS: Final = SessionShape.__struct_fields__.index("status")
_of_session: Final = attrgetter(*(field for field in SessionShape.__struct_fields__ if field != "status"))


def show_session(session: Session, status: Status) -> SessionShape:
    shown = _of_session(session)
    return SessionShape(*(*shown[:_STATUS], status, *shown[_STATUS:]))


def show_rewound(rewound: Rewound) -> RewoundShape:
    moved = RewoundShape(rewound.head_turn_id, tuple(rewound.hidden), rewound.draft)
    taken = rewound.submission
    if taken is None:
        return moved
    return msgspec.structs.replace(moved, message_id=taken.message_id, queued=taken.queued)


def show_webhook(webhook: Webhook, *, secret: bool = False) -> WebhookShape:
    shown = {field: getattr(webhook, field) for field in WebhookShape.__struct_fields__}
    return WebhookShape(**{**shown, "secret": webhook.secret if secret else UNSET})
