"""Maintenance of a SQL store: reading all of a session, its facts, and checking the whole store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from typing import Final

from clew.errors import RowUndecodable
from clew.store.base import Damage, FullSession
from clew.store.facts import Fact
from clew.store.sql import line_reader, rows, triggers
from clew.store.sql.adopt import unadopted_sessions
from clew.store.sql.journal import decode_entries, messages_of, streams_by_name, to_mark
from clew.store.sql.log import to_fact
from clew.store.sql.messages import MessageReader, messages_ending
from clew.store.sql.statements import SqlReader, Statements, reading, reading_session, reading_store
from clew.transcript.spend import NANO, UsageGroup, UsageQuery, UsageSums

__all__ = ["CHECKS", "Check", "SqlMaintenance", "run_checks"]

Check = Callable[[Statements], Iterable[Damage]]
"""A check of one area; yields the damage it finds."""


class SqlMaintenance(SqlReader):
    """The part of :class:`clew.store.base.Maintenance` that is the same on every engine."""

    @reading
    def store_id(self, sql: Statements) -> str:
        row = sql.first("get_store_mark", {})
        return row[0] if row else ""

    @reading_store
    def session_ids(self, sql: Statements) -> tuple[str, ...]:
        return tuple(row[0] for row in sql.rows("all_session_ids", {}))

    @reading
    def unfinished_sessions(self, sql: Statements) -> tuple[str, ...]:
        return tuple(row[0] for row in sql.rows("unfinished_sessions", {}))

    @reading
    def load_message_ids(self, sql: Statements, session_id: str) -> tuple[str, ...]:
        asked = {"id": session_id}
        found = [id_ for (id_,) in sql.rows("message_ids", asked)]
        # A damaged index hides rows; the turns name them.
        held = [row[1] for row in sql.rows("load_links_of_session", asked)]
        return tuple(dict.fromkeys((*found, *held)))

    @reading_session
    def find_full_session(self, sql: Statements, session_id: str) -> FullSession | None:
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
                Damage("its metadata cannot be decoded", session_id, row.id) for row in messages if row.is_unreadable
            ]
        return FullSession(
            rows.to_session(row),
            messages,
            line_reader.load_tree(sql, session_id),
            reader.queue(session_id),
            dict(sql.rows("load_seals", {"id": session_id})),
            reader.pending(session_id),
            tuple(damaged),
            line_reader.load_pruned(sql, session_id),
            line_reader.load_calls(sql, session_id),
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

    @reading_store
    def blob_bytes(self, sql: Statements) -> int:
        row = sql.first("blob_bytes", {})
        return int(row[0]) if row is not None else 0

    @reading
    def load_facts(self, sql: Statements, stream_id: str) -> tuple[Fact, ...]:
        return tuple(to_fact(row) for row in sql.rows("load_facts", {"stream_id": stream_id}))


def run_checks(sql: Statements, checks: Iterable[Check], broken: type[Exception]) -> list[Damage]:
    """Run all checks and return the damage. A check that damage itself interrupts, with ``broken``, does not stop the
    others."""
    found: list[Damage] = []
    for check in checks:
        try:
            found += check(sql)
        except (broken, RowUndecodable) as error:
            found.append(Damage(str(error)))
    return found


def _journal(sql: Statements) -> Iterator[Damage]:
    """Check that every row decodes, every stream in the journal has a mark, and every mark a stream."""
    marks = {mark.message_id: mark for mark in map(to_mark, sql.rows("load_marks", {}))}
    streams_found: set[str] = set()
    broken = 0
    for n, data, crc in sql.rows("load_journal", {"id": None}):
        try:
            streams_found |= decode_entries((n, data, crc)).keys()
        except RowUndecodable as error:
            broken += 1
            yield Damage(str(error))
    names = streams_by_name(marks.values())
    unmarked = messages_of(streams_found - names.keys(), marks, lambda ends: messages_ending(sql, ends))
    # A name that belongs to no existing message is reported as it is.
    for message_id in sorted({id_ for name, ids in unmarked.items() for id_ in ids or [name]} - marks.keys()):
        yield Damage("the journal holds a stream that has no mark", id=message_id)
    streams = {names[name] for name in streams_found & names.keys()}
    for message_id, mark in sorted(marks.items()):
        if not mark.is_sound:
            yield Damage("its mark in the journal is damaged", mark.session_id, message_id)
        elif message_id not in streams and not broken:
            yield Damage("a mark names a stream that is not in the journal", id=message_id)


def _turns(sql: Statements) -> Iterable[Damage]:
    return [
        Damage(f"it holds {found} messages instead of {count}", session_id, turn_id)
        for session_id, turn_id, count, found in sql.rows("miscounted_turns", {})
    ]


def _prompts_and_blobs(sql: Statements) -> Iterator[Damage]:
    """Check system prompts and blobs against their digests."""
    for digest, body in sql.rows("load_prompts", {}):
        if sha256(body).hexdigest() != digest:
            yield Damage("a system prompt does not match its digest", id=digest)
    for (digest,) in sql.rows("load_blob_digests", {}):
        row = sql.first("find_blob", {"sha256": digest})
        if row is None or sha256(row[2]).hexdigest() != digest:
            yield Damage("a blob does not match its digest", id=digest)


def _triggers(sql: Statements) -> Iterator[Damage]:
    """Check that every schedule and webhook can be decoded."""
    for name, read in (("list_schedules", triggers.to_schedule), ("list_webhooks", triggers.to_webhook)):
        for row in sql.rows(name, {}):
            try:
                read(row)
            except RowUndecodable as error:
                yield Damage(str(error), id=row[0])


CHECKS: Final[tuple[Check, ...]] = (_journal, _turns, _prompts_and_blobs, _triggers, unadopted_sessions)
"""The checks that apply to every SQL store."""
