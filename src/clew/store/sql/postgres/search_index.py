"""The search index as writers maintain it: nothing is indexed when it is written; a search updates the index first.

The database itself notes a message when it is sealed, and the next search indexes it, in whichever process that runs.
Everything here runs in a writer's thread, inside the open transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import orjson

from clew.store.sql import rows
from clew.store.sql.postgres.search_words import searched_text, words_of
from clew.store.sql.statements import Statements

__all__ = ["SearchIndex"]

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
