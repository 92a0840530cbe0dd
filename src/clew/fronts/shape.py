"""Shapes: values as every front shows them, so that a command's JSON and an HTTP answer are the same."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from clew.history.rewind import Rewound
from clew.live.base import Status
from clew.runtime.submission import Submission
from clew.transcript.rule import Rule
from clew.transcript.session import Model, Session
from clew.triggers.routing import Routing
from clew.triggers.webhook import Webhook

__all__ = [
    "RewoundShape",
    "RuleShape",
    "SessionShape",
    "SubmissionShape",
    "WebhookShape",
    "rewound_shape",
    "rule_shape",
    "session_shape",
    "submission_shape",
    "webhook_shape",
]


class SessionShape(msgspec.Struct, frozen=True, kw_only=True):
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
    status: Status


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


class RuleShape(msgspec.Struct, frozen=True):
    """A permission rule with the scope it is of."""

    permission: str
    pattern: str
    action: Literal["allow", "deny", "ask"]
    source: Literal["manifest", "session", "project"]
    added_at: int | None
    pinned: bool


def session_shape(session: Session, status: Status) -> SessionShape:
    return SessionShape(
        id=session.id,
        agent=session.agent,
        title=session.title,
        label=session.label,
        workspace_root=session.workspace_root,
        model=session.model,
        parent_id=session.parent_id,
        parent_message_id=session.parent_message_id,
        kind=session.kind,
        head_turn_id=session.head_turn_id,
        metadata=session.metadata,
        prompt_tokens=session.prompt_tokens,
        completion_tokens=session.completion_tokens,
        reasoning_tokens=session.reasoning_tokens,
        cache_read=session.cache_read,
        cache_write=session.cache_write,
        total_tokens=session.total_tokens,
        cost_usd=session.cost_usd,
        created_at=session.created_at,
        updated_at=session.updated_at,
        archived_at=session.archived_at,
        status=status,
    )


def rewound_shape(rewound: Rewound) -> RewoundShape:
    moved = RewoundShape(rewound.head_turn_id, tuple(rewound.hidden), rewound.draft)
    if rewound.submission is None:
        return moved
    taken = submission_shape(rewound.submission)
    return msgspec.structs.replace(moved, message_id=taken.message_id, queued=taken.queued)


def submission_shape(submission: Submission) -> SubmissionShape:
    return SubmissionShape(submission.message_id, submission.queued)


def rule_shape(rule: Rule) -> RuleShape:
    return RuleShape(rule.permission, rule.pattern, rule.action, rule.source, rule.added_at, rule.pinned)


class WebhookShape(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook as clients see it. The secret is there once, when it was made."""

    name: str
    prompt: str | None
    paused: bool
    routing: Routing
    created_at: int
    secret: str | UnsetType = UNSET


def webhook_shape(webhook: Webhook, *, secret: bool = False) -> WebhookShape:
    return WebhookShape(
        name=webhook.name,
        prompt=webhook.prompt,
        paused=webhook.paused,
        routing=webhook.routing,
        created_at=webhook.created_at,
        secret=webhook.secret if secret else UNSET,
    )
