"""The search index as the writer keeps it: nothing is indexed when it is written, a search catches up first.

A message is indexed once it is sealed, and again when its seal is another one than the index has. The index is made
by the first search and can be dropped at any time; what it holds is worked out from the parts. Everything here runs
in the writer's thread, inside the transaction that is open.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from itertools import islice
from typing import Final, Literal

from clew.store.sql import rows
from clew.store.sql.sqlite.connection import QUERIES
from clew.store.sql.statements import Statements

__all__ = ["SearchIndex", "search_schema"]

BATCH: Final = 500
"""At most so many messages are indexed in one transaction."""

BATCH_CHARS: Final = 1_000_000
"""And no more once their parts are this long."""

_LOOK: Final = 2_000
_MAX_STALE: Final = 20_000


def search_schema(sql: Statements) -> Literal["whole", "none", "other"]:
    """Whether the file has an index as this version makes it, none at all, or something else in its place."""
    found = {row[0]: row[1] for row in sql.rows("load_search_schema", {})}
    if found == {name: QUERIES[f"make_{name}"] for name in ("search_texts", "search_index")}:
        return "whole"
    return "other" if "search_index" in found else "none"


class SearchIndex:
    """Keeps the index in step with the parts. ``available`` is whether this SQLite has FTS5."""

    def __init__(self, sql: Statements, *, available: bool) -> None:
        self._sql = sql
        self._available = available
        self._used = sql.first("any_search_mark", {}) is not None
        # The look over all seals goes on after this id; None once it has come to the end.
        self._scan: str | None = ""
        # What was sealed or changed since that look began. Nobody keeps notes before the first search.
        self._stale: dict[str, None] = {}
        self._searched = False

    # While units are applied

    def note(self, message_ids: Iterable[str]) -> None:
        """These messages were sealed or changed."""
        if self._searched:
            self._stale.update(dict.fromkeys(message_ids))
            if len(self._stale) > _MAX_STALE:
                self.restart()

    def forget_message(self, message_id: str) -> None:
        """Before a part of it changes."""
        if self._used and self._sql.first("has_search_mark", {"id": message_id}) is not None:
            self._forget([message_id])
            self.note([message_id])

    def forget_session(self, session_id: str) -> None:
        """Before it is deleted; its rows of ``search_docs`` and ``search_marks`` then go with it.

        FTS5 only notes what is taken out, word for word; the words leave the file when its pieces are made one.
        """
        if self._used and self._sql.first("any_search_doc_of", {"id": session_id}) is not None:
            for name in ("unindex_session", "merge_search_index"):
                self._unindex(name, {"id": session_id})

    # For a search

    def batch(self) -> bool:
        """Index some of what is missing. Whether there is more."""
        if search_schema(self._sql) != "whole":
            self.make()
        self._searched = True
        taken = self._take()
        if taken:
            ids = {"ids": rows.encode(list(taken))}
            self._used = True
            self._forget([id_ for id_, again in taken.items() if again])
            if search_schema(self._sql) != "whole":
                return True  # it was damaged, and is gone
            last = self._sql.first("last_search_doc", {})
            params = {**ids, "last": last[0] if last else 0}
            for name in ("add_search_docs", "index_search_docs", "mark_searched"):
                self._sql.run(name, params)
        return bool(self._stale) or self._scan is not None

    def make(self) -> None:
        """An empty index in place of whatever there is."""
        self._clear()
        self._sql.run("make_search_texts", {})
        self._sql.run("make_search_index", {})

    def restart(self) -> None:
        """Look over all seals again; needed whenever a transaction of a search was rolled back."""
        self._scan = ""
        self._stale.clear()

    def _take(self) -> dict[str, bool]:
        """Messages for one batch, with whether the index has an older state of them."""
        if self._stale:
            looked = list(islice(self._stale, _LOOK))
            seals = self._sql.rows("seals_of", {"ids": rows.encode(looked)})
        elif self._scan is not None:
            seals = self._sql.rows("next_seals", {"after": self._scan, "limit": _LOOK})
            looked = [row[0] for row in seals]
        else:
            return {}
        wanted = [(id_, marked is not None) for id_, digest, marked in seals if marked != digest]
        sizes = dict(self._sql.rows("sizes_of_messages", {"ids": rows.encode([id_ for id_, _ in wanted[:BATCH]])}))
        taken: dict[str, bool] = {}
        chars = 0
        for id_, again in wanted[:BATCH]:
            if taken and chars >= BATCH_CHARS:
                break
            taken[id_] = again
            chars += sizes.get(id_, 0)
        left = {id_ for id_, _ in wanted[len(taken) :]}
        if self._stale:
            for id_ in looked:
                if id_ not in left:
                    del self._stale[id_]
        elif left:
            self._scan = max(taken)
        else:
            self._scan = looked[-1] if len(looked) == _LOOK else None
        return taken

    # Taking out

    def _forget(self, message_ids: list[str]) -> None:
        if message_ids:
            ids = {"ids": rows.encode(message_ids)}
            self._unindex("unindex_messages", ids)
            self._sql.run("delete_search_docs", ids)
            self._sql.run("delete_search_marks", ids)

    def _unindex(self, name: str, params: dict[str, str]) -> None:
        schema = search_schema(self._sql)
        if schema == "whole" and self._available:
            try:
                self._sql.run(name, params)
            except sqlite3.DatabaseError as error:
                # A damaged index can be made again, and must keep nobody from deleting.
                if not _is_damage(error):
                    raise
                self._clear()
        elif schema != "none":
            self._clear()

    def _clear(self) -> None:
        """Leave nothing of an index; the next search makes one."""
        if self._available:
            try:
                self._sql.run("drop_search_index", {})
            except sqlite3.DatabaseError as error:
                if not _is_damage(error):
                    raise
                self._empty()
                self._sql.run("drop_search_index", {})
        else:
            self._empty()
        for name in ("drop_search_texts", "empty_search_docs", "empty_search_marks"):
            self._sql.run(name, {})
        self.restart()

    def _empty(self) -> None:
        """Take every word out, without FTS5. The view goes too, so that whoever has FTS5 makes the index anew."""
        for name in ("empty_search_data", "fill_search_data", "empty_search_idx", "empty_search_docsize"):
            self._sql.run(name, {})


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Whether it is about the index itself; a full disk, or a lock, is not."""
    return (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)
