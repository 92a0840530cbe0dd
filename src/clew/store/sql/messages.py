"""Reading messages: parts, the tail of a stream in flight, and verification against what was stored.

A settled message is checked against its seal each time it is read. One that does not match is returned marked as
damaged, or raises where the caller wants undamaged data only. Rows are found through indexes, which may be damaged too;
so missing or mismatching rows are read a second time in another way before they count as damaged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, get_args

import orjson
from msgspec.structs import replace

from clew.errors import IllegalChunk, RowUndecodable
from clew.store.base import PendingStream, QueuedMessage
from clew.store.pending_work import UNSTORED, with_tail
from clew.store.sql import rows
from clew.store.sql.journal import JournalLine, Tail, read_tails, to_mark
from clew.store.sql.statements import Statements
from clew.transcript.damage import (
    CHANGED,
    DAMAGED,
    MISSING,
    UNSEALED,
    begin_seal,
    damaged_part,
    seal_of,
    seal_of_encoded,
)
from clew.transcript.message import MessageRow, PartRow, Role

__all__ = ["ROLES", "MessageReader", "messages_ending", "placeholder"]

ROLES: Final = frozenset(get_args(Role))

_PartRows = Sequence[tuple[Any, ...]]


class MessageReader:
    """Reads messages inside one read transaction."""

    def __init__(self, statements: Statements) -> None:
        self._sql = statements

    def view(
        self,
        session_id: str,
        wanted: set[str],
        *,
        whole: bool,
        keep_damaged: bool,
        heads: Collection[rows.Row] | None = None,
    ) -> dict[str, MessageRow]:
        """Return messages as a view needs them: without ids and times of parts, except where more has to be read.

        Those that match their seals and decode fully, as nearly all do, are read from three columns. ``heads`` are
        their rows with their seals, if already read.
        """
        named = [] if whole else sorted(wanted) if heads is None else [row[0] for row in heads]
        params = {"id": session_id, "ids": rows.encode(named)}
        parts: dict[str, tuple[blake2b, list[PartRow]]] = {}
        for message_id, index, data in self._sql.each(
            "load_view_of_session" if whole else "load_view_of_messages", params
        ):
            held = parts.get(message_id)
            if held is None:
                held = parts[message_id] = begin_seal(), []
            seal, loaded_parts = held
            seal.update(data)
            seal.update(b"\n")
            try:
                loaded_parts.append(PartRow(UNSTORED, index, orjson.loads(data), 0, 0))
            except orjson.JSONDecodeError:
                loaded_parts.append(PartRow(UNSTORED, -1, {}, 0, 0))
        messages: dict[str, MessageRow] = {}
        by = "load_session_messages" if whole else "load_messages_by_id"
        found: Iterable[rows.Row] = self._sql.rows(by, params) if heads is None else heads
        for row in found:
            held = parts.get(row[0])
            if held is not None and row[0] in wanted:
                message = _sealed_message(row, *held)
                if message is not None:
                    messages[row[0]] = message
        others = wanted - messages.keys()
        return {**messages, **self.load(session_id, others, keep_damaged=keep_damaged)} if others else messages

    def load(
        self, session_id: str, wanted: set[str] | None, *, whole: bool = False, keep_damaged: bool
    ) -> dict[str, MessageRow]:
        """Return messages by id; reads the whole session when most of it is wanted, else only those."""
        if not whole and not wanted:
            return {}
        if whole:
            found = {row[0]: row for row in self._sql.rows("load_session_messages", {"id": session_id})}
            parts = _by_message(self._sql.rows("load_session_parts", {"id": session_id}))
        else:
            found, parts = self._by_id(wanted or ())
        if whole and wanted is not None:
            missing = wanted - found.keys()
            if missing:
                again = self._by_id(missing)
                found, parts = {**found, **again[0]}, {**parts, **again[1]}
            found = {id_: row for id_, row in found.items() if id_ in wanted}
        tails = self.tails(session_id)
        unsealed = self._without_seal(found, tails)
        return {
            # Removed while they are converted: freeing that many rows together would stall other threads.
            id_: self._message(row, parts.pop(id_, ()), tails.get(id_), id_ in unsealed, keep_damaged)
            for id_, row in found.items()
        }

    def load_all(
        self, session_id: str, *, keep_damaged: bool, among: Collection[str] | None = None
    ) -> tuple[MessageRow, ...]:
        """Return every message of a session, or those ``among`` some ids, compared with the ids that its turns hold.

        A damaged index hides rows. A message that a turn holds but the index does not is read by its id; if that fails
        too, it is damage.
        """
        wanted = None if among is None else set(among)
        found = self.load(session_id, wanted, whole=wanted is None, keep_damaged=keep_damaged)
        links = self._sql.rows("load_links_of_session", {"id": session_id})
        held = {row[1]: row for row in links if wanted is None or row[1] in wanted}
        missing = held.keys() - found.keys()
        found.update(self.load(session_id, missing, keep_damaged=keep_damaged))
        for message_id in missing - found.keys():
            turn_id, _, position, at = held[message_id]
            if not keep_damaged:
                raise RowUndecodable(MISSING, session_id=session_id, turn_id=turn_id, message_id=message_id)
            found[message_id] = placeholder(message_id, session_id, "assistant" if position else "user", at, MISSING)
        mine = (row for row in found.values() if row.session_id == session_id)
        return tuple(sorted(mine, key=lambda row: (row.created_at, row.id)))

    def mismatched(self, message_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return session and id of each message whose parts, read by message, do not match its seal."""
        ids = {"ids": rows.encode(message_ids)}
        seals: dict[str, blake2b] = {}
        for message_id, _, data in self._sql.each("load_view_of_messages", ids):
            seal = seals.setdefault(message_id, begin_seal())
            seal.update(data)
            seal.update(b"\n")
        empty = begin_seal()
        differ = [
            (row[1], row[0], row[rows.MESSAGE_SEAL])
            for row in self._sql.rows("load_messages_by_id", ids)
            if row[rows.MESSAGE_SEAL] not in (None, seals.get(row[0], empty).hexdigest())
        ]
        # Another program may have written the same values in another way.
        _, parts = self._by_id([id_ for _, id_, _ in differ])
        return [
            (session_id, id_)
            for session_id, id_, digest in differ
            if _check_seal(sorted(parts.get(id_, ()), key=_index_of), digest) is not None
        ]

    def queue(self, session_id: str) -> tuple[QueuedMessage, ...]:
        """Return the queue in firing order."""
        waiting = list(self._sql.rows("load_queue", {"id": session_id}))
        messages = self.load(session_id, {row[0] for row in waiting}, keep_damaged=True)
        return tuple(
            QueuedMessage(messages.get(id_) or placeholder(id_, session_id, "user", at, MISSING), at, bool(interrupt))
            for id_, at, interrupt in waiting
        )

    def _by_id(self, wanted: Iterable[str]) -> tuple[dict[str, tuple[Any, ...]], dict[str, list[tuple[Any, ...]]]]:
        ids = {"ids": rows.encode(sorted(wanted))}
        found = {row[0]: row for row in self._sql.rows("load_messages_by_id", ids)}
        return found, _by_message(self._sql.rows("load_parts_by_message", ids))

    def _without_seal(self, found: Mapping[str, tuple[Any, ...]], tails: Mapping[str, Tail]) -> set[str]:
        """Return settled messages without a seal."""
        bare = [row for id_, row in found.items() if row[rows.MESSAGE_SEAL] is None and id_ not in tails]
        if not bare:
            return set()
        mark = self._sql.first("get_store_mark", {})
        since = mark[1] if mark else 0
        bare = [row for row in bare if isinstance(at := row[rows.MESSAGE_CREATED_AT], int) and at >= since]
        ids = rows.encode([row[0] for row in bare])
        return {row[0] for row in self._sql.rows("settled_among", {"ids": ids})} if bare else set()

    def _message(
        self,
        row: tuple[Any, ...],
        part_rows: _PartRows,
        tail: Tail | None,
        unsealed: bool,
        keep_damaged: bool,
    ) -> MessageRow:
        damage: str | None = None
        digest: str | None = row[rows.MESSAGE_SEAL]
        part_rows = sorted(part_rows, key=_index_of)
        if digest is not None and _digest(part_rows) != digest:
            part_rows, damage = self._reread_parts(row, digest)
        if row[2] not in ROLES:
            damage = f"its role is invalid: {row[2]!r}"
            row = (*row[:2], "assistant", *row[3:])
        parts = tuple(rows.to_part(part, keep_damaged) for part in part_rows)
        # Parts that match the seal are complete and ordered, so checking the last index is enough.
        if (digest is None or damage or (parts and parts[-1].index != len(parts) - 1)) and [
            part.index for part in parts
        ] != list(range(len(parts))):
            damage = damage or "a part is missing: the parts are not numbered from 0 on"
            parts = _filled(parts)
        message = rows.to_message(row, parts, keep_damaged)
        damage = damage or message.damage or (UNSEALED if unsealed else None)
        if tail is not None and digest is None:
            damage = damage or tail.damage
            try:
                message = with_tail(message, tail.entries)
            except IllegalChunk as error:
                damage = f"its journal entries do not match its parts: {error}"
        if damage is None:
            return message
        if not keep_damaged:
            raise RowUndecodable(damage, session_id=message.session_id, message_id=message.id)
        return replace(message, metadata={**message.metadata, DAMAGED: damage})

    def _reread_parts(self, row: tuple[Any, ...], digest: str) -> tuple[_PartRows, str | None]:
        """Return the parts by each of their indexes until they fit the seal, and why they do not."""
        by_message = "load_parts_by_message", {"ids": rows.encode([row[0]])}
        by_session = "load_parts_by_session", {"id": row[1], "message_id": row[0]}
        found = sorted(self._sql.rows(*by_message), key=_index_of)
        damage = _check_seal(found, digest)
        if damage is not None:
            others = sorted(self._sql.rows(*by_session), key=_index_of)
            if _check_seal(others, digest) is None:
                return others, None
        return found, damage

    # Streams in flight

    def tails(self, session_id: str | None) -> dict[str, Tail]:
        """Return what the journal holds above the marks, by message, of one session or of all."""
        if session_id is None:
            marks = [to_mark(row) for row in self._sql.rows("load_marks", {})]
            return read_tails(self._journal(None), marks, lambda ends: messages_ending(self._sql, ends))
        marks = [to_mark(row) for row in self._sql.rows("load_marks_of_session", {"id": session_id})]
        found: dict[str, Tail] = {}
        commit = self._sql.first("get_commits", {}) if marks and self._sql.tails is not None else None
        if commit is not None and self._sql.tails is not None:
            # The commit number is read first: entries are cached before they are committed.
            remembered = {mark.message_id: self._sql.tails.find(mark, commit[0]) for mark in marks}
            marks = [mark for mark in marks if remembered[mark.message_id] is None]
            found = {id_: tail for id_, tail in remembered.items() if tail is not None and tail.entries}
        return {**found, **read_tails(self._journal(session_id), marks)} if marks else found

    def _journal(self, session_id: str | None) -> Iterator[JournalLine]:
        """Return rows that may concern this session, or all rows; an engine whose rows mix sessions ignores the id."""
        return ((n, data, crc) for n, data, crc in self._sql.rows("load_journal", {"id": session_id}))

    def pending(self, session_id: str | None) -> tuple[PendingStream, ...]:
        """Return streams that recovery has to fold, each with its message as the parts alone have it."""
        pending: list[PendingStream] = []
        for message_id, tail in self.tails(session_id).items():
            found, parts = self._by_id([message_id])
            if message_id in found:
                held = sorted(parts.get(message_id, ()), key=_index_of)
                loaded_parts = tuple(rows.to_part(part, keep_damaged=True) for part in held)
                message = rows.to_message(found[message_id], loaded_parts, keep_damaged=True)
                # A sealed message is complete: its rows only wait for earlier rows to be removed.
                damage = tail.damage if found[message_id][rows.MESSAGE_SEAL] is None else None
                pending.append(PendingStream(message.session_id, message, tuple(tail.entries), tail.last, damage))
        return tuple(pending)


def messages_ending(sql: Statements, ends: Collection[str]) -> Iterator[str]:
    """Return the ids of all messages with one of these ends. It scans all of them, so it is used only when a mark is
    lost."""
    return (row[0] for row in sql.rows("messages_ending", {"ends": rows.encode(sorted(ends))}))


def placeholder(message_id: str, session_id: str, role: Role, at: int, reason: str) -> MessageRow:
    """Return a placeholder for a missing message."""
    return MessageRow(message_id, session_id, role, at, at, {DAMAGED: reason})


def _by_message(part_rows: Iterable[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    """Group rows by message in their order, which is the order of the parts except in rare cases."""
    parts: dict[str, list[tuple[Any, ...]]] = {}
    for row in part_rows:
        parts.setdefault(row[1], []).append(row)
    return parts


def _index_of(part_row: tuple[Any, ...]) -> Any:
    return part_row[2]


def _sealed_message(row: rows.Row, seal: blake2b, parts: list[PartRow]) -> MessageRow | None:
    """Return the message if its parts match its seal and all of it decodes."""
    id_, session_id, role, metadata, created_at, updated_at, sealed = row
    # Parts that match the seal are complete and ordered, so checking the last index is enough.
    if sealed is None or parts[-1].index != len(parts) - 1 or seal.hexdigest() != sealed or role not in ROLES:
        return None
    try:
        about = {} if metadata == "{}" else orjson.loads(metadata)
    except orjson.JSONDecodeError:
        return None
    if type(about) is not dict or DAMAGED in about or type(created_at) is not int or type(updated_at) is not int:
        return None
    return MessageRow(id_, session_id, role, created_at, updated_at, about, tuple(parts))


def _digest(part_rows: _PartRows) -> str:
    return seal_of_encoded([row[3].encode("utf-8", "surrogatepass") for row in part_rows])


def _check_seal(part_rows: _PartRows, digest: str) -> str | None:
    """Return why these parts do not match a seal; None when they do, however another program formatted their JSON."""
    if _digest(part_rows) == digest:
        return None
    try:
        return None if seal_of(rows.to_part(row, keep_damaged=False).data for row in part_rows) == digest else CHANGED
    except RowUndecodable:
        return CHANGED


def _filled(parts: Sequence[PartRow]) -> tuple[PartRow, ...]:
    """Return the parts with placeholders for the missing ones."""
    by_index = {part.index: part for part in parts}
    last = min(max(by_index, default=-1), 10_000)
    at = parts[0].created_at if parts else 0
    return tuple(
        by_index.get(index) or PartRow("", index, damaged_part("part_id", "", MISSING), at, at)
        for index in range(last + 1)
    )
