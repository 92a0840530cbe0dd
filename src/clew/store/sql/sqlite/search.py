"""Asking the search index: one page of hits, on a connection that cannot write."""

from __future__ import annotations

from typing import Any

import orjson
from msgspec.structs import replace

from clew.store import search
from clew.store.search import SearchHit, SearchPage, SearchPlan, excerpt, next_cursor
from clew.store.sql import rows
from clew.store.sql.messages import MessageReader
from clew.store.sql.sqlite.search_index import search_schema
from clew.store.sql.statements import Statements

__all__ = ["find_hits"]


def find_hits(sql: Statements, plan: SearchPlan) -> SearchPage | None:
    """The page of a plan; None when the file has no index of this version's making."""
    if search_schema(sql) != "whole":
        return None
    wanted = plan.limit + 1
    params = {
        "match": plan.match,
        "words": rows.encode(plan.words),
        "session_id": plan.session_id,
        "limit": wanted,
        "offset": plan.offset,
        "most": search.MOST_RANKED,
    }
    if plan.match is None:
        # The text itself is looked at, as far as the page needs it.
        found = list(sql.rows("search_texts_themselves", params))
        total, at_least = plan.offset + len(found[: plan.limit]), len(found) > plan.limit
    else:
        counted = sql.first("count_hits", params) or (0,)
        total, at_least = min(counted[0], search.MOST_RANKED), counted[0] > search.MOST_RANKED
        found = list(sql.rows("search_words", params)) if plan.offset < total else []
        if at_least and len(found) < wanted:
            older = {"limit": wanted - len(found), "offset": max(plan.offset, total)}
            found += sql.rows("search_older_words", {**params, **older})
    page = found[: plan.limit]
    if plan.match is None:
        snippets = {row[0]: excerpt(row[0], plan.words) for row in page}
    else:
        ids = rows.encode([row[0] for row in page])
        snippets = dict(sql.rows("search_snippets", {"match": plan.match, "ids": ids}))
    hits = [_hit(row, snippets[row[0]]) for row in page]
    held: dict[str, set[str]] = {}
    for hit in hits:
        held.setdefault(hit.session_id, set()).add(hit.message_id)
    read = [MessageReader(sql).load(id_, wanted, keep_damaged=True) for id_, wanted in held.items()]
    damaged = {row.id for messages in read for row in messages.values() if row.damage is not None}
    told = (replace(hit, snippet=f"[damaged] {hit.snippet}") if hit.message_id in damaged else hit for hit in hits)
    more = next_cursor(plan) if len(found) > plan.limit else None
    return SearchPage(tuple(told), more, total=total, at_least=at_least)


def _hit(row: tuple[Any, ...], snippet: str) -> SearchHit:
    _, session_id, message_id, part_id, role, created_at, message_json, session_json = row
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


def _metadata(text: str) -> dict[str, Any]:
    """A damaged row costs what it would have said, not the page."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
