"""Answers: values as JSON responses, in the shapes the API promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from starlette.responses import Response

from clew.live.base import Status
from clew.transcript.session import Session

__all__ = ["HEADERS", "answer", "nothing", "session_shape"]

HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_encode = msgspec.json.Encoder().encode


def answer(value: Any, status: int = 200) -> Response:
    """The value as JSON."""
    return Response(_encode(value), status, HEADERS, media_type="application/json")


def nothing() -> Response:
    """Done, and nothing to say about it."""
    return Response(None, 204, HEADERS)


def session_shape(session: Session, status: Status) -> Mapping[str, Any]:
    """A session as clients see it: what lives in its metadata lifted out, its own rules left out."""
    return {
        "id": session.id,
        "agent": session.agent,
        "title": session.title,
        "label": session.label,
        "workspace_root": session.workspace_root,
        "model": session.model,
        "parent_id": session.parent_id,
        "parent_message_id": session.parent_message_id,
        "kind": session.kind,
        "head_turn_id": session.head_turn_id,
        "metadata": session.metadata,
        "prompt_tokens": session.prompt_tokens,
        "completion_tokens": session.completion_tokens,
        "reasoning_tokens": session.reasoning_tokens,
        "cache_read": session.cache_read,
        "cache_write": session.cache_write,
        "total_tokens": session.total_tokens,
        "cost_usd": session.cost_usd,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "archived_at": session.archived_at,
        "status": status,
    }
