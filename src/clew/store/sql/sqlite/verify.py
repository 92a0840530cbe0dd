"""A look at all of a SQLite store: pages, references, the journal, what is kept once, and what was lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Final

from clew.errors import RowUndecodable
from clew.store.base import Damage
from clew.store.sql import triggers
from clew.store.sql.apply import Statements
from clew.store.sql.journal import Mark, decode_entries
from clew.store.sql.losses import load_losses, told
from clew.store.sql.sqlite.connection import SqliteStatements

__all__ = ["verify"]


def verify(connection: sqlite3.Connection) -> Iterator[Damage]:
    """Everything that is wrong. One look that damage itself cuts short must not cost what the others find."""
    sql = SqliteStatements(connection)
    for look in _LOOKS:
        try:
            yield from look(sql)
        except (sqlite3.DatabaseError, RowUndecodable) as error:
            yield Damage(str(error))


def _pages(sql: Statements) -> Iterable[Damage]:
    return [Damage(row[0]) for row in sql.rows("verify_pages", {}) if row[0] != "ok"]


def _references(sql: Statements) -> Iterable[Damage]:
    return [
        Damage(f"row {rowid} of {table} names a row of {parent} that is not there")
        for table, rowid, parent, _ in sql.rows("verify_references", {})
    ]


def _journal(sql: Statements) -> Iterator[Damage]:
    """Every row reads, every stream in the journal has a mark, and every mark a stream."""
    marks = {row[0]: Mark(*row) for row in sql.rows("load_marks", {})}
    held: set[str] = set()
    broken = 0
    for n, data, crc in sql.rows("load_journal", {}):
        try:
            held |= decode_entries((n, data, crc)).keys()
        except RowUndecodable as error:
            broken += 1
            yield Damage(str(error))
    for message_id in sorted(held - marks.keys()):
        yield Damage("the journal holds a stream that has no mark", id=message_id)
    for message_id, mark in sorted(marks.items()):
        if not mark.is_sound:
            yield Damage("its mark in the journal is damaged", mark.session_id, message_id)
        elif message_id not in held and not broken:
            yield Damage("a mark names a stream that the journal does not hold", id=message_id)


def _turns(sql: Statements) -> Iterable[Damage]:
    return [
        Damage(f"it holds {found} messages where there were {count}", session_id, turn_id)
        for session_id, turn_id, count, found in sql.rows("miscounted_turns", {})
    ]


def _kept_once(sql: Statements) -> Iterator[Damage]:
    """System prompts and blobs are what their digests say."""
    for digest, body in sql.rows("load_prompts", {}):
        if sha256(body).hexdigest() != digest:
            yield Damage("a system prompt is not what its digest says", id=digest)
    for (digest,) in sql.rows("load_blob_digests", {}):
        row = sql.first("find_blob", {"sha256": digest})
        if row is None or sha256(row[2]).hexdigest() != digest:
            yield Damage("a blob is not what its digest says", id=digest)


def _triggers(sql: Statements) -> Iterator[Damage]:
    """Every schedule and every webhook can be read."""
    for name, read in (("list_schedules", triggers.to_schedule), ("list_webhooks", triggers.to_webhook)):
        for row in sql.rows(name, {}):
            try:
                read(row)
            except RowUndecodable as error:
                yield Damage(str(error), id=row[0])


def _losses(sql: Statements) -> Iterable[Damage]:
    return [told(loss) for loss in load_losses(sql) if loss.accepted_at is None]


_LOOKS: Final[tuple[Callable[[Statements], Iterable[Damage]], ...]] = (
    _pages,
    _references,
    _journal,
    _turns,
    _kept_once,
    _triggers,
    _losses,
)
