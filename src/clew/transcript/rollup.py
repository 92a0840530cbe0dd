"""Adds the usage of a model call to its message and its session. Runs once per call, never per chunk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from clew.transcript.message import MessageRow
from clew.transcript.metadata import BROKEN_OFF_USD, broken_off_usd, is_estimated, usage_of
from clew.transcript.session import Session
from clew.transcript.turn import Step
from clew.transcript.usage import Usage

__all__ = ["book_message", "book_session", "book_usage", "sum_usage", "with_usage"]


def sum_usage(messages: Iterable[MessageRow]) -> Usage:
    """Return the session's usage, summed over its assistant messages."""
    total = Usage()
    for message in messages:
        if message.role == "assistant":
            total = total + message.usage
    return total


def book_usage(
    metadata: Mapping[str, Any], usage: Usage, *, estimated: bool = False, broken_off: float = 0.0
) -> dict[str, Any]:
    """Return the message's metadata with this usage added. A sum that includes an estimate is marked as one.

    The cost of interrupted calls, which belong to no step, is stored too: a copy of the message must cost the same.
    """
    sums = msgspec.to_builtins(usage_of(metadata) + usage)
    if estimated or is_estimated(metadata):
        sums["estimated"] = True
    cost = broken_off_usd(metadata) + broken_off
    if cost:
        sums[BROKEN_OFF_USD] = cost
    return {**metadata, "usage": sums}


def book_message(metadata: Mapping[str, Any], step: Step) -> dict[str, Any]:
    """Return the message's metadata with a step's usage added, and with its model and prompt."""
    updated = {
        **book_usage(metadata, step.usage, estimated=step.is_estimated),
        "model": msgspec.to_builtins(step.model),
    }
    if step.prompt_digest is not None:
        updated["system_prompt_digest"] = step.prompt_digest
    return updated


def book_session(session: Session, usage: Usage, cost_usd: float, at: int = 0) -> Session:
    """Return the session row with this usage and cost added; ``at`` advances its ``updated_at``."""
    return msgspec.structs.replace(
        with_usage(session, session.usage + usage),
        cost_usd=session.cost_usd + cost_usd,
        updated_at=max(session.updated_at, at),
    )


def with_usage(session: Session, used: Usage) -> Session:
    """Return the session row with these sums."""
    return msgspec.structs.replace(
        session,
        prompt_tokens=used.input,
        completion_tokens=used.output,
        reasoning_tokens=used.reasoning,
        cache_read=used.cache_read,
        cache_write=used.cache_write,
        total_tokens=used.total,
    )
