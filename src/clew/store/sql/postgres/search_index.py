"""The search index as writers keep it: nothing is indexed when it is written, a search catches up first.

A message is noted when it is sealed, by the database itself, and indexed by the next search, whichever process that
comes to. Everything here runs in a writer's thread, inside the transaction that is open.
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
"""At most so many messages are indexed in one transaction."""

BATCH_CHARS: Final = 1_000_000
"""And no more once their parts are this long."""

_LOCK: Final = 0x636C6577_02


class SearchIndex:
    """See :class:`clew.store.sql.apply.Index`."""

    def __init__(self, sql: Statements) -> None:
        self._sql = sql

    def note(self, message_ids: Iterable[str]) -> None:
        """The database notes it, whoever seals."""

    def forget_message(self, message_id: str) -> None:
        self._sql.run("forget_searched", {"id": message_id})

    def forget_session(self, session_id: str) -> None:
        """What the index holds of it goes with its messages."""

    def batch(self) -> bool:
        """Index some of what is missing. Whether there is more."""
        sql = self._sql
        sql.first("lock_search", {"key": _LOCK})
        found = [row[0] for row in sql.rows("take_stale", {"limit": BATCH})]
        sizes = dict(sql.rows("sizes_of_messages", {"ids": rows.encode(found)}))
        taken: list[str] = []
        chars = 0
        for message_id in sorted(found):
            if taken and chars >= BATCH_CHARS:
                break
            taken.append(message_id)
            chars += sizes.get(message_id, 0)
        left = sorted(set(found) - set(taken))
        if left:
            sql.run("put_back_stale", {"ids": rows.encode(left)})
        if taken:
            ids = {"ids": rows.encode(taken)}
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
        """An empty index in place of whatever there is."""
        self._sql.first("lock_search", {"key": _LOCK})
        self._sql.run("make_search_anew", {})
