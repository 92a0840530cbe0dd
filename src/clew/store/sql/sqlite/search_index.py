"""The search index: nothing is indexed when it is written; a search updates the index, then reads one page of hits.

A message is indexed once it is sealed, and again when its seal differs from the index's. The index is created by the
first search and can be dropped at any time; it is derived from the parts. Everything here runs in the writer's thread,
inside the open transaction.

Parts are read through SQLite indexes, which may be damaged. They are therefore compared with the seals of their
messages when they are indexed, and before a process's first search every part the search index names is looked up.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final, Literal, TypeVar

from clew.store import search
from clew.store.search import SearchPage, SearchPlan, excerpt, next_cursor
from clew.store.sql import rows
from clew.store.sql.messages import MessageReader
from clew.store.sql.search import mark_damaged, to_hit
from clew.store.sql.sqlite.connection import QUERIES, SqliteStatements
from clew.store.sql.sqlite.indexes import indexes_of, rebuild
from clew.store.sql.sqlite.names import without_prefix
from clew.store.sql.statements import Statements

__all__ = ["SearchIndex", "find_hits", "is_complete", "search_schema"]

log = logging.getLogger("clew.store")

T = TypeVar("T")

BATCH: Final = 500
"""Maximum number of messages indexed in one transaction."""

BATCH_CHARS: Final = 1_000_000
"""Length of their parts after which no more messages are added."""

_SCAN_ROWS: Final = 2_000
_MERGED_PAGES: Final = 200
_MAX_STALE: Final = 20_000


def search_schema(sql: Statements) -> Literal["whole", "none", "other"]:
    """Return "whole" if the file has this version's index, "none" if it has no index, else "other"."""
    found = {without_prefix(name): without_prefix(made) for name, made in sql.rows("load_search_schema", {})}
    if found == {name: QUERIES[f"make_{name}"] for name in ("search_texts", "search_index")}:
        return "whole"
    return "other" if "search_index" in found else "none"


class SearchIndex:
    """Keeps the index in sync with the parts. ``available``: this SQLite has FTS5."""

    def __init__(self, sql: SqliteStatements, *, available: bool) -> None:
        self._sql = sql
        self._available = available
        self._used = sql.first("any_search_mark", {}) is not None
        # The scan over all seals continues after this id; None once it is complete.
        self._scan: str | None = ""
        # Messages sealed or changed since that scan began. Not tracked before the first search.
        self._stale: dict[str, None] = {}
        self._tracking = False
        self._docs_checked = False
        self._is_merging = False

    # While units are applied

    def note(self, message_ids: Iterable[str]) -> None:
        """Record that these messages were sealed or changed."""
        if self._tracking:
            self._stale.update(dict.fromkeys(message_ids))
            if len(self._stale) > _MAX_STALE:
                self.restart()

    def forget_message(self, message_id: str) -> None:
        """Remove a message from the index before a part of it changes."""
        if self._used and self._sql.first("has_search_mark", {"id": message_id}) is not None:
            self._forget([message_id])
            self.note([message_id])

    def forget_session(self, session_id: str) -> bool:
        """Remove some parts of a session from the index before they are deleted; return whether there are more.

        FTS5 only marks entries as deleted; the words leave the file when its segments are merged.
        """
        docs = [row[0] for row in self._sql.rows("next_search_docs", {"id": session_id})] if self._used else []
        if docs:
            ids = {"docs": rows.encode(docs)}
            self._unindex("unindex_docs", ids)
            self._sql.run("delete_docs", ids)
            # A negative number begins the merge of all segments, which takes time proportional to the whole index.
            self._is_merging = self._unindex("merge_search_index", {"pages": -_MERGED_PAGES})
        elif self._is_merging:
            before = self._sql.connection.total_changes
            has_merged = self._unindex("merge_search_index", {"pages": _MERGED_PAGES})
            self._is_merging = has_merged and self._sql.connection.total_changes - before >= 2
        return self._is_merging or bool(docs)

    # Indexing

    def batch(self) -> bool:
        """Index some of what is missing; return whether there is more."""
        if search_schema(self._sql) != "whole":
            self.make()
        self._tracking = True
        if not self._docs_checked:
            self._check_docs()
            self._docs_checked = True
        batch_ids = self._next_batch()
        if batch_ids:
            ids = {"ids": rows.encode(list(batch_ids))}
            self._check_parts(list(batch_ids))
            self._used = True
            self._forget([id_ for id_, again in batch_ids.items() if again])
            if search_schema(self._sql) != "whole":
                return True  # it was damaged and has been dropped
            last = self._sql.first("last_search_doc", {})
            params = {**ids, "last": last[0] if last else 0}
            for name in ("add_search_docs", "index_search_docs", "mark_searched"):
                self._sql.run(name, params)
        return bool(self._stale) or self._scan is not None

    def make(self) -> None:
        """Replace any existing index with an empty one."""
        self._clear()
        self._sql.run("make_search_texts", {})
        self._sql.run("make_search_index", {})

    def restart(self) -> None:
        """Scan all seals again; required after a search's transaction was rolled back."""
        self._scan = ""
        self._stale.clear()
        self._docs_checked = False

    def _next_batch(self) -> dict[str, bool]:
        """Return messages for one batch, and whether the index has an older state of them."""
        if self._stale:
            checked = list(islice(self._stale, _SCAN_ROWS))
            seals = self._sql.rows("seals_of", {"ids": rows.encode(checked)})
        elif self._scan is not None:
            seals = self._sql.rows("next_seals", {"after": self._scan, "limit": _SCAN_ROWS})
            checked = [row[0] for row in seals]
        else:
            return {}
        wanted = [(id_, marked is not None) for id_, digest, marked in seals if marked != digest]
        ids = {"ids": rows.encode([id_ for id_, _ in wanted[:BATCH]])}
        sizes = dict(self._read_parts(lambda: self._sql.rows("sizes_of_messages", ids)))
        batch_ids: dict[str, bool] = {}
        chars = 0
        for id_, again in wanted[:BATCH]:
            if batch_ids and chars >= BATCH_CHARS:
                break
            batch_ids[id_] = again
            chars += sizes.get(id_, 0)
        remaining = {id_ for id_, _ in wanted[len(batch_ids) :]}
        if self._stale:
            for id_ in checked:
                if id_ not in remaining:
                    del self._stale[id_]
        elif remaining:
            self._scan = max(batch_ids)
        else:
            self._scan = checked[-1] if len(checked) == _SCAN_ROWS else None
        return batch_ids

    # Damaged indexes of parts

    def _check_docs(self) -> None:
        """Rebuild the indexes of parts if they miss a part that the search index names."""
        lost = self._read_parts(lambda: self._sql.first("any_lost_search_doc", {}))
        if lost is not None and self._rebuild_part_indexes():
            # Parts that are still missing were deleted by another program.
            self._sql.run("delete_lost_search_docs", {})

    def _check_parts(self, message_ids: list[str]) -> None:
        """Rebuild the indexes of parts if they miss parts of these messages; log the messages that are damaged.

        A message that matches its seal when it is read by another index is not damaged; the first index is.
        """
        reader = MessageReader(self._sql)
        differ = self._read_parts(lambda: reader.mismatched(message_ids))
        damaged = [
            id_
            for session_id, id_ in differ
            if any(row.damage for row in reader.load(session_id, {id_}, keep_damaged=True).values())
        ]
        ids = {"ids": rows.encode(message_ids)}
        found = self._read_parts(lambda: self._sql.first("any_unfindable_part", ids))
        if found is not None or len(damaged) < len(differ):
            self._rebuild_part_indexes()
        if damaged:
            log.warning("searches may miss damaged messages: %s", ", ".join(damaged))

    def _read_parts(self, read: Callable[[], T]) -> T:
        """Read parts by their indexes; if a page cannot be read, rebuild the indexes and read again."""
        try:
            return read()
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
        self._rebuild_part_indexes()
        return read()

    def _rebuild_part_indexes(self) -> bool:
        """Rebuild all indexes of parts; return False if the table is damaged too."""
        try:
            rebuild(self._sql.connection, "chat_parts", indexes_of(self._sql.connection, "chat_parts"))
        except sqlite3.DatabaseError as error:
            if not _is_damage(error) and not isinstance(error, sqlite3.IntegrityError):
                raise
            log.warning("chat_parts is damaged and searches may miss messages: %s", error)
            return False
        log.warning("an index of chat_parts did not contain all rows and was rebuilt")
        return True

    # Removing

    def _forget(self, message_ids: list[str]) -> None:
        if message_ids:
            ids = {"ids": rows.encode(message_ids)}
            self._unindex("unindex_messages", ids)
            self._sql.run("delete_search_docs", ids)
            self._sql.run("delete_search_marks", ids)

    def _unindex(self, name: str, params: Mapping[str, object]) -> bool:
        """Run a statement on the index; return False if there is none any more, as it was of no use."""
        schema = search_schema(self._sql)
        if schema == "whole" and self._available:
            try:
                self._sql.run(name, params)
            except sqlite3.DatabaseError as error:
                # A damaged index can be rebuilt and must not prevent deletion.
                if not _is_damage(error):
                    raise
            else:
                return True
        if schema != "none":
            self._clear()
        return False

    def _clear(self) -> None:
        """Remove the index; the next search creates one."""
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
        """Remove every word without FTS5. The view is removed too, so that a process with FTS5 rebuilds the index."""
        for name in ("empty_search_data", "fill_search_data", "empty_search_idx", "empty_search_docsize"):
            self._sql.run(name, {})


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """Return whether the error is about the index itself; a full disk or a lock is not."""
    return (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT)


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
