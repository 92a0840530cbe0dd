"""Querying the search index: one page of hits, from one state of the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import orjson

from clew.store import search
from clew.store.search import SearchPage, SearchPlan, excerpt, next_cursor
from clew.store.sql.hits import mark_damaged, to_hit
from clew.store.sql.postgres.search_words import parse_match, searched_text, snippet_of, to_tsquery
from clew.store.sql.statements import Statements

__all__ = ["find_hits"]

_SCAN_ROWS: Final = 200
_MAX_ID: Final = 2**63 - 1


def find_hits(sql: Statements, plan: SearchPlan) -> SearchPage:
    """Return the page of a plan."""
    wanted = plan.limit + 1
    if plan.match is None:
        # The text itself is scanned, as far as the page needs it.
        matching = _texts(sql, plan)
        matches = [row for _, row in zip(range(plan.offset + wanted), matching, strict=False)]
        found = matches[plan.offset :]
        total, at_least = plan.offset + len(found[: plan.limit]), len(found) > plan.limit
        snippets = [excerpt(_text(row), plan.words) for row in found[: plan.limit]]
    else:
        phrases = parse_match(plan.match)
        params: dict[str, Any] = {"match": to_tsquery(phrases), "session_id": plan.session_id, "owner": plan.owner}
        params |= {"exact": to_tsquery(parse_match(plan.exact or ""))}
        params |= {"limit": wanted, "offset": plan.offset, "most": search.MAX_RANKED}
        counted = sql.first("count_hits", params) or (0,)
        total, at_least = min(counted[0], search.MAX_RANKED), counted[0] > search.MAX_RANKED
        found = list(sql.rows("search_words", params)) if plan.offset < total else []
        if at_least and len(found) < wanted:
            older = {"limit": wanted - len(found), "offset": max(plan.offset, total)}
            found += sql.rows("search_older_words", {**params, **older})
        snippets = [snippet_of(_text(row), phrases) for row in found[: plan.limit]]
    hits = (to_hit(row[:7], snippet) for row, snippet in zip(found, snippets, strict=False))
    more = next_cursor(plan) if len(found) > plan.limit else None
    return SearchPage(mark_damaged(sql, hits), more, total=total, at_least=at_least)


def _text(row: tuple[Any, ...]) -> str:
    return searched_text(row[7], orjson.loads(row[8]))


def _texts(sql: Statements, plan: SearchPlan) -> Iterator[tuple[Any, ...]]:
    """Yield parts whose text contains all words, newest first."""
    before, words = _MAX_ID, [word.casefold() for word in plan.words]
    while True:
        params = {"session_id": plan.session_id, "owner": plan.owner, "before": before, "limit": _SCAN_ROWS}
        found = list(sql.rows("search_texts_themselves", params))
        for row in found:
            text = _text(row).casefold()
            if all(word in text for word in words):
                yield row
        if len(found) < _SCAN_ROWS:
            return
        before = found[-1][9]
