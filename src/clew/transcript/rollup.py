"""What the end of a step adds up to: the message's usage, the session's sums. Once per step, never from the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from clew.transcript.message import MessageRow
from clew.transcript.metadata import usage_of
from clew.transcript.session import Session
from clew.transcript.turn import Step
from clew.transcript.usage import Usage

__all__ = ["book_message", "book_session", "sum_usage", "with_usage"]


def sum_usage(messages: Iterable[MessageRow]) -> Usage:
    """The session's sums as they must be: over its assistant messages."""
    total = Usage()
    for message in messages:
        if message.role == "assistant":
            total = total + message.usage
    return total


def book_message(metadata: Mapping[str, Any], step: Step) -> dict[str, Any]:
    """The message's metadata with the step's usage added to what earlier steps used."""
    usage = msgspec.to_builtins(usage_of(metadata) + step.usage)
    booked = {**metadata, "usage": usage, "model": msgspec.to_builtins(step.model)}
    if step.prompt_digest is not None:
        booked["system_prompt_digest"] = step.prompt_digest
    return booked


def book_session(session: Session, step: Step) -> Session:
    """The session row with the step in its sums; this is also what moves ``updated_at``."""
    return msgspec.structs.replace(
        with_usage(session, session.usage + step.usage),
        cost_usd=session.cost_usd + step.cost_usd,
        updated_at=max(session.updated_at, step.finished_at),
    )


def with_usage(session: Session, used: Usage) -> Session:
    """The session row with these sums."""
    return msgspec.structs.replace(
        session,
        prompt_tokens=used.input,
        completion_tokens=used.output,
        reasoning_tokens=used.reasoning,
        cache_read=used.cache_read,
        cache_write=used.cache_write,
        total_tokens=used.total,
    )
