"""Care of a SQL store: all of a session at once, its facts, and a look at everything."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Final

from clew.errors import RowUndecodable
from clew.store.base import Damage, Whole
from clew.store.facts import Fact
from clew.store.sql import lines, rows, triggers
from clew.store.sql.adopt import untaken_sessions
from clew.store.sql.journal import decode_entries
from clew.store.sql.log import to_fact
from clew.store.sql.marks import messages_of, streams_by_name, to_mark
from clew.store.sql.messages import MessageReader, messages_ending
from clew.store.sql.statements import SqlReader, Statements, reading, reading_session, reading_store
from clew.transcript.spend import NANO, UsageGroup, UsageQuery, UsageSums

__all__ = ["LOOKS", "Look", "SqlCare", "look_over"]

Look = Callable[[Statements], Iterable[Damage]]
"""Finds what is wrong with one thing."""


class SqlCare(SqlReader):
    """The part of :class:`clew.store.base.Care` that is the same on every engine."""

    @reading
    def store_id(self, sql: Statements) -> str:
        row = sql.first("get_store_mark", {})
        return row[0] if row else ""

    @reading_store
    def session_ids(self, sql: Statements) -> tuple[str, ...]:
        return tuple(row[0] for row in sql.rows("all_session_ids", {}))

    @reading_session
    def find_whole(self, sql: Statements, session_id: str) -> Whole | None:
        row = sql.first("find_session", {"id": session_id})
        if row is None:
            return None
        reader = MessageReader(sql)
        damaged: list[Damage] = []
        try:
            messages = reader.load_all(session_id, keep_damaged=False)
        except RowUndecodable as error:
            if "part_id" in error.ids:
                damaged.append(Damage(str(error), session_id, str(error.ids["part_id"])))
            messages = reader.load_all(session_id, keep_damaged=True)
            damaged += [Damage(row.damage, session_id, row.id) for row in messages if row.damage is not None]
            damaged += [
                Damage("its metadata is not readable", session_id, row.id) for row in messages if row.is_unreadable
            ]
        return Whole(
            rows.to_session(row),
            messages,
            lines.load_tree(sql, session_id),
            reader.queue(session_id),
            dict(sql.rows("load_seals", {"id": session_id})),
            reader.pending(session_id),
            tuple(damaged),
            lines.load_pruned(sql, session_id),
            lines.load_calls(sql, session_id),
            tuple(rows.to_step(step) for step in sql.rows("load_session_steps", {"id": session_id})),
        )

    @reading_store
    def load_usage(self, sql: Statements, query: UsageQuery) -> tuple[UsageGroup, ...]:
        until = query.until if query.until is not None else 2**63 - 1
        found = sql.rows(
            "load_usage", {"by": query.by, "since": query.since or 0, "until": until, "owner": query.owner}
        )
        sums = ((row[0], dict(zip(UsageSums.__struct_fields__, row[1:], strict=True))) for row in found)
        return tuple(UsageGroup(key=key, **{**known, "cost_usd": known["cost_usd"] / NANO}) for key, known in sums)

    @reading
    def load_facts(self, sql: Statements, stream_id: str) -> tuple[Fact, ...]:
        return tuple(to_fact(row) for row in sql.rows("load_facts", {"stream_id": stream_id}))


def look_over(sql: Statements, looks: Iterable[Look], broken: type[Exception]) -> list[Damage]:
    """Everything that is wrong. One look that damage itself cuts short, with ``broken``, must not cost what the others
    find."""
    found: list[Damage] = []
    for look in looks:
        try:
            found += look(sql)
        except (broken, RowUndecodable) as error:
            found.append(Damage(str(error)))
    return found


def _journal(sql: Statements) -> Iterator[Damage]:
    """Every row reads, every stream in the journal has a mark, and every mark a stream."""
    marks = {mark.message_id: mark for mark in map(to_mark, sql.rows("load_marks", {}))}
    held: set[str] = set()
    broken = 0
    for n, data, crc in sql.rows("load_journal", {"id": None}):
        try:
            held |= decode_entries((n, data, crc)).keys()
        except RowUndecodable as error:
            broken += 1
            yield Damage(str(error))
    names = streams_by_name(marks.values())
    strays = messages_of(held - names.keys(), marks, lambda ends: messages_ending(sql, ends))
    # A name that is of no message any more is told as it stands.
    for message_id in sorted({id_ for name, ids in strays.items() for id_ in ids or [name]} - marks.keys()):
        yield Damage("the journal holds a stream that has no mark", id=message_id)
    streams = {names[name] for name in held & names.keys()}
    for message_id, mark in sorted(marks.items()):
        if not mark.is_sound:
            yield Damage("its mark in the journal is damaged", mark.session_id, message_id)
        elif message_id not in streams and not broken:
            yield Damage("a mark names a stream that the journal does not hold", id=message_id)


def _turns(sql: Statements) -> Iterable[Damage]:
    return [
        Damage(f"it holds {found} messages where there were {count}", session_id, turn_id)
        for session_id, turn_id, count, found in sql.rows("miscounted_turns", {})
    ]


def _prompts_and_blobs(sql: Statements) -> Iterator[Damage]:
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


LOOKS: Final[tuple[Look, ...]] = (_journal, _turns, _prompts_and_blobs, _triggers, untaken_sessions)
"""At what every SQL store holds."""
