"""Querying the search index: one page of hits, on a connection that cannot write."""

from __future__ import annotations

from clew.store import search
from clew.store.search import SearchPage, SearchPlan, excerpt, next_cursor
from clew.store.sql import rows
from clew.store.sql.hits import mark_damaged, to_hit
from clew.store.sql.sqlite.search_index import search_schema
from clew.store.sql.statements import Statements

__all__ = ["find_hits", "is_complete"]


def is_complete(sql: Statements) -> bool:
    """Return whether the index has every sealed message, and no part that is gone."""
    return all(sql.first(name, {}) is None for name in ("any_unsearched", "any_lost_search_doc"))


def find_hits(sql: Statements, plan: SearchPlan) -> SearchPage | None:
    """Return the page of a plan; None if the file has no index of this version."""
    if search_schema(sql) != "whole":
        return None
    wanted = plan.limit + 1
    params = {
        "match": plan.match,
        "exact": plan.exact,
        "words": rows.encode(plan.words),
        "session_id": plan.session_id,
        "owner": plan.owner,
        "limit": wanted,
        "offset": plan.offset,
        "most": search.MAX_RANKED,
    }
    if plan.match is None:
        # The text itself is scanned, as far as the page needs it.
        found = list(sql.rows("search_texts_themselves", params))
        total, at_least = plan.offset + len(found[: plan.limit]), len(found) > plan.limit
    else:
        counted = sql.first("count_hits", params) or (0,)
        total, at_least = min(counted[0], search.MAX_RANKED), counted[0] > search.MAX_RANKED
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
    hits = mark_damaged(sql, (to_hit(row[1:], snippets[row[0]]) for row in page))
    more = next_cursor(plan) if len(found) > plan.limit else None
    return SearchPage(hits, more, total=total, at_least=at_least)
