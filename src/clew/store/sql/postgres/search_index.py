"""The search index: nothing is indexed when it is written; a search updates the index, then reads one page of hits.

The database itself notes a message when it is sealed, and the next search indexes it, in whichever process that runs.
Everything here runs in a writer's thread, inside the open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import orjson

from clew.store import search
from clew.store.search import SearchPage, SearchPlan, excerpt, next_cursor
from clew.store.sql import rows
from clew.store.sql.postgres.search_words import parse_match, searched_text, snippet_of, to_tsquery, words_of
from clew.store.sql.search import mark_damaged, to_hit
from clew.store.sql.statements import Statements

__all__ = ["SearchIndex", "find_hits"]

BATCH: Final = 500
"""Maximum number of messages indexed in one transaction."""

BATCH_CHARS: Final = 1_000_000
"""Length of their parts after which no more messages are added."""

_LOCK: Final = 0x636C6577_02


class SearchIndex:
    """See :class:`clew.store.sql.apply.Index`."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql

    def note(self, message_ids: Iterable[str]) -> None:
        """Do nothing: the database notes sealed messages itself."""

    def forget_message(self, message_id: str) -> None:
        self._sql.run("forget_searched", {"id": message_id})

    def forget_session(self, session_id: str) -> bool:
        """Do nothing: index rows are deleted with their messages."""
        return False

    def batch(self) -> bool:
        """Index some of what is missing; return whether there is more."""
        sql = self._sql
        sql.first("lock_search", {"key": _LOCK})
        found = [row[0] for row in sql.rows("take_stale", {"limit": BATCH})]
        sizes = dict(sql.rows("sizes_of_messages", {"ids": rows.encode(found)}))
        batch_ids: list[str] = []
        chars = 0
        for message_id in sorted(found):
            if batch_ids and chars >= BATCH_CHARS:
                break
            batch_ids.append(message_id)
            chars += sizes.get(message_id, 0)
        remaining = sorted(set(found) - set(batch_ids))
        if remaining:
            sql.run("put_back_stale", {"ids": rows.encode(remaining)})
        if batch_ids:
            ids = {"ids": rows.encode(batch_ids)}
            sql.run("delete_searched", ids)
            docs = []
            for part_id, message_id, type_, data in sql.rows("load_searched_parts", ids):
                words = words_of(searched_text(type_, orjson.loads(data)))
                docs.append({"part_id": part_id, "message_id": message_id, "words": words})
            if docs:
                sql.many("add_search_doc", docs)
            sql.run("mark_searched", ids)
        return sql.first("any_stale", {}) is not None

    def make(self) -> None:
        """Replace any existing index with an empty one."""
        self._sql.first("lock_search", {"key": _LOCK})
        self._sql.run("make_search_anew", {})


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
