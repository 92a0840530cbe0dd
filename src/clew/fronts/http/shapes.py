"""What HTTP alone answers: lists, small confirmations, frames of streams, problems.

Sessions, rules and moves have the shapes that every front shows (:mod:`clew.fronts.shape`); reports are the engine's
own values. All of them together are the schemas of the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from clew.compaction.files import TouchedFile
from clew.fronts.shape import RuleShape, SessionShape, WebhookShape
from clew.history.tree import ReflogEntry
from clew.providers.base import ModelListing
from clew.store.base import Damage
from clew.transcript.message import Message
from clew.transcript.session import Model, parse_model
from clew.triggers.routing import Routing
from clew.triggers.schedule import Schedule

__all__ = [
    "Aborted",
    "AgentList",
    "AgentShape",
    "Chunk",
    "ConsideredShape",
    "EventFrame",
    "ExplainedShape",
    "FileList",
    "Health",
    "MessageList",
    "ModelList",
    "ModelName",
    "Part",
    "Problem",
    "ReflogList",
    "Remaining",
    "RoutingBody",
    "RuleList",
    "ScheduleList",
    "ServerShape",
    "SessionList",
    "SessionPage",
    "SubjectShape",
    "WebhookList",
    "routed",
]

ModelName = Annotated[str, Meta(description="provider/model", examples=["demo/echo"])] | dict[str, Any]
"""How a body names a model: ``provider/model``, or its parts."""

Action = Literal["allow", "ask", "deny"]
Scope = Literal["manifest", "session", "project"]


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
    """That clew is here, and the kind of its store."""

    version: str
    store: str


class ServerShape(msgspec.Struct, frozen=True):
    """What is running here. ``workspace_root`` is the folder it was started in, null when that is gone.

    ``chunk_durable`` says that what is streamed is stored before it is shown, ``search`` that the store can search.
    ``losses`` is what was acknowledged and is not in the store any more, until somebody has accepted it.
    """

    version: str
    store: str
    workspace_root: str | None
    chunk_durable: bool
    search: bool
    losses: tuple[Damage, ...] = ()


class ModelList(msgspec.Struct, frozen=True):
    models: Sequence[ModelListing]


class AgentShape(msgspec.Struct, frozen=True):
    """An agent a session can have."""

    name: str
    description: str
    mode: Literal["primary", "subagent", "internal"]
    model: Model | None
    tools: tuple[str, ...] | None
    max_steps: int
    source: Literal["builtin", "user", "project"]


class AgentList(msgspec.Struct, frozen=True):
    """``notices`` say which manifests could not be used, and why."""

    agents: Sequence[AgentShape]
    notices: Sequence[str]


class SessionPage(msgspec.Struct, frozen=True):
    """Sessions, newest first; null as ``next_cursor`` on the last page."""

    sessions: Sequence[SessionShape]
    next_cursor: str | None


class SessionList(msgspec.Struct, frozen=True):
    sessions: Sequence[SessionShape]


class FileList(msgspec.Struct, frozen=True):
    """Files that the conversation has read or changed, the one touched last first."""

    files: Sequence[TouchedFile]


class MessageList(msgspec.Struct, frozen=True):
    messages: Sequence[Message]


class ReflogList(msgspec.Struct, frozen=True):
    """Every move of the head, newest first."""

    moves: Sequence[ReflogEntry]


class Aborted(msgspec.Struct, frozen=True):
    """Whether there was something to stop."""

    aborted: bool


class Remaining(msgspec.Struct, frozen=True):
    """How many requests of the step are still open; at 0 the run has started."""

    remaining: int


class RuleList(msgspec.Struct, frozen=True):
    rules: Sequence[RuleShape]


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


class RoutingBody(msgspec.Struct):
    """One of these: a session by its id, its label, or a routing key. The latter two are made when missing."""

    session_id: str | None = None
    label: str | None = None
    key: str | None = None


def routed(
    body: RoutingBody | None, model: ModelName | None, agent: str | None, workspace_root: str | None, title: str | None
) -> Routing:
    """Where something goes, and what a session that is made for it gets."""
    chosen = body or RoutingBody()
    return Routing(
        session_id=chosen.session_id,
        label=chosen.label,
        key=chosen.key,
        model=parse_model(model) if model is not None else None,
        agent=agent,
        workspace_root=workspace_root,
        title=title,
    )


class ScheduleList(msgspec.Struct, frozen=True):
    """All schedules, by their ids."""

    schedules: Sequence[Schedule]


class WebhookList(msgspec.Struct, frozen=True):
    """All webhooks, by their names; without their secrets."""

    webhooks: Sequence[WebhookShape]
