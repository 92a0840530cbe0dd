"""Search hits in SQL: converting rows, and marking hits in damaged messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
from msgspec.structs import replace

from clew.store.search import SearchHit
from clew.store.sql.messages import MessageReader
from clew.store.sql.statements import Statements

__all__ = ["mark_damaged", "to_hit"]


def to_hit(row: tuple[Any, ...], snippet: str) -> SearchHit:
    """Convert a row: ids of session, message and part, the message's role, time and metadata, the session's
    metadata."""
    session_id, message_id, part_id, role, created_at, message_json, session_json = row
    title = _metadata(session_json).get("title")
    return SearchHit(
        session_id=session_id,
        message_id=message_id,
        part_id=part_id,
        title=title if isinstance(title, str) else None,
        snippet=snippet,
        hidden="hidden_at" in _metadata(message_json),
        role=role,
        created_at=created_at,
    )


def mark_damaged(sql: Statements, hits: Iterable[SearchHit]) -> tuple[SearchHit, ...]:
    """Return the hits with those in damaged messages marked."""
    hits = tuple(hits)
    by_session: dict[str, set[str]] = {}
    for hit in hits:
        by_session.setdefault(hit.session_id, set()).add(hit.message_id)
    loaded = [MessageReader(sql).load(id_, wanted, keep_damaged=True) for id_, wanted in by_session.items()]
    damaged = {row.id for messages in loaded for row in messages.values() if row.damage is not None}
    return tuple(replace(hit, snippet=f"[damaged] {hit.snippet}") if hit.message_id in damaged else hit for hit in hits)


def _metadata(text: str) -> dict[str, Any]:
    """Decode metadata; a damaged row loses its metadata but does not fail the page."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
