"""The journal's bookkeeping: which rows hold which streams, how far each stream is folded, and which rows may go.

One journal row is written per commit, with the chunks of every stream that were accepted in it. The book is kept
by the writer, in memory, beside the rows; when a transaction is rolled back it is read again from them. What rows call
a stream is the business of :mod:`clew.store.sql.marks`.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from zlib import crc32

import msgspec

from clew.errors import IllegalChunk, RowUndecodable
from clew.store.sql.marks import Ending, Mark, mark_crc, messages_of, short_name, streams_by_name
from clew.store.unit import JournalEntry
from clew.transcript.chunk import EncodedRow, JournalRow, encode_rows, parse_row, split_rows

log = logging.getLogger("clew.store")

__all__ = ["JournalBook", "JournalLine", "Tail", "decode_entries", "read_tails", "row_crc"]


JournalLine = tuple[int, bytes, int | None]
"""A row as it is stored: its number, its text, its checksum; rows of older files have none."""


class Tail(msgspec.Struct):
    """What the journal holds of a stream above its mark, as far as it goes on without a gap.

    ``last`` is the highest number that was seen of it; ``damage`` says why there may have been more.
    """

    entries: list[JournalEntry]
    last: int
    damage: str | None = None


def row_crc(n: int, data: bytes) -> int:
    """The checksum of a row, its number included."""
    return crc32(data, n & 0xFFFFFFFF)


def _split(line: JournalLine) -> dict[str, list[EncodedRow]]:
    """A journal row as its streams' entries, by what it calls them, their chunks not decoded."""
    n, data, crc = line
    streams: dict[str, list[EncodedRow]] = {}
    try:
        if crc is not None and crc != row_crc(n, data):
            raise RowUndecodable("its checksum does not match")
        for row in split_rows(data):
            streams.setdefault(row.stream, []).append(row)
    except (msgspec.DecodeError, RowUndecodable, TypeError, ValueError) as error:
        raise RowUndecodable(f"row {n} of the journal is not readable: {error}", row=n) from error
    return streams


def _entries(n: int, encoded: Iterable[EncodedRow]) -> list[JournalEntry]:
    try:
        return [JournalEntry(row.n, row.part, parse_row(row)) for row in encoded]
    except (msgspec.DecodeError, IllegalChunk, TypeError, ValueError) as error:
        raise RowUndecodable(f"row {n} of the journal is not readable: {error}", row=n) from error


def decode_entries(line: JournalLine) -> dict[str, list[JournalEntry]]:
    """A journal row as its streams' chunks, by what it calls them."""
    return {name: _entries(line[0], encoded) for name, encoded in _split(line).items()}


def read_tails(lines: Iterable[JournalLine], marks: Iterable[Mark], ending: Ending | None = None) -> dict[str, Tail]:
    """What the journal holds of the streams that have a mark; with ``ending`` of those that have none, too.

    A row that does not read costs what it held: a stream ends before the first number that is missing. Which streams
    were in it nobody knows, so every one that was not heard of again may have lost its end there. Chunks of other
    streams are passed over as they stand.
    """
    known = {mark.message_id: mark for mark in marks}
    names = streams_by_name(known.values())
    tails = {mark.message_id: Tail([], mark.folded_through) for mark in known.values()}
    # What a damaged mark may have called its stream: nothing is put to that, but it tells how far the stream went.
    perhaps: dict[str, str] = {}
    for id_, mark in known.items():
        if not mark.is_sound:
            tails[id_].damage = _DAMAGED_MARK
            perhaps |= {id_: id_, short_name(id_) or id_: id_}
    strays: dict[str, int] = {}
    for line in lines:
        try:
            streams = _split(line)
            found = {name: _entries(line[0], streams[name]) for name in streams.keys() & names.keys()}
        except RowUndecodable:
            for tail in tails.values():
                tail.damage = tail.damage or _MAYBE
            continue
        for name, entries in found.items():
            _extend(tails[names[name]], known[names[name]], entries)
        for name in streams.keys() - names.keys():
            strays[name] = max(strays.get(name, 0), streams[name][-1].n)
    for name in strays.keys() & perhaps.keys():
        tails[perhaps[name]].last = max(tails[perhaps[name]].last, strays[name])
    for name, message_ids in messages_of(strays, known, ending).items() if ending is not None else ():
        for id_ in message_ids:
            tail = tails.setdefault(id_, Tail([], 0, "its mark in the journal is lost, and its end with it"))
            if not tail.entries:  # else it goes by its whole id, and the stray is another one's
                tail.last = max(tail.last, strays[name])
                tail.damage = tail.damage or _DAMAGED_MARK
    return {id_: tail for id_, tail in tails.items() if tail.entries or tail.damage}


_DAMAGED_MARK: Final = "its mark in the journal is damaged: what came after its stored parts is lost"
_MAYBE: Final = "a row of the journal is not readable: it may have lost its end"
_GAP: Final = "a row of the journal is not readable: it has lost its end"


def _extend(tail: Tail, mark: Mark, entries: Sequence[JournalEntry]) -> None:
    above = [entry for entry in entries if entry.n > mark.folded_through]
    if not above:
        return
    # Marks of older files do not say where a stream begins in the journal.
    begins = not tail.entries and mark.crc is None and mark.folded_through == 0
    if tail.damage not in (None, _MAYBE):
        tail.last = max(tail.last, above[-1].n)
        return
    if above[0].n != tail.last + 1 and not begins:
        tail.damage = _GAP
    else:
        tail.entries += above
        tail.damage = None
    tail.last = above[-1].n


_MOST_FINISHED: Final = 1_024


class _Row(msgspec.Struct):
    """A journal row as the book knows it: all its streams, and the last chunk of those not past it yet."""

    members: tuple[str, ...]
    waiting: dict[str, int]


class JournalBook:
    """What the writer knows of the journal between two commits, and what the commit under way adds to it."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._finished: set[int] = set()
        self._rows_of: dict[str, deque[int]] = {}
        self._session_of: dict[str, str] = {}
        self._name_of: dict[str, str] = {}
        self._taken: set[str] = set()
        """Names that rows hold, or marks: none is given to another stream."""
        self._accepted: dict[str, list[JournalEntry]] = {}
        self._accepted_session: dict[str, str] = {}
        self._passed: dict[str, int] = {}

    def load(self, lines: Iterable[JournalLine], marks: Mapping[str, Mark], ending: Ending) -> None:
        """Start over from the stored rows and marks."""
        self.__init__()  # type: ignore[misc]
        sessions = {id_: mark.session_id for id_, mark in marks.items()}
        names = {name: [id_] for name, id_ in streams_by_name(marks.values()).items()}
        held = [(line[0], self._last_of(line)) for line in lines]
        strays = {name for _, last in held for name in last or () if name not in names}
        for name, ids in messages_of(strays, marks, ending).items():
            # One that is of no message any more is known by itself.
            names[name] = ids or [name]
        self._taken.update(names)
        self._name_of = {ids[0]: name for name, ids in names.items() if len(ids) == 1}
        for n, by_name in held:
            if by_name is None:
                # It goes once every stream that may have been in it was folded, which recovery does.
                last = dict.fromkeys(marks, 0)
                waiting = dict(last)
            else:
                last = {id_: top for name, top in by_name.items() for id_ in names[name]}
                waiting = {id_: top for id_, top in last.items() if id_ not in marks or top > marks[id_].folded_through}
            self._add(n, tuple(last), waiting, {id_: sessions[id_] for id_ in last if id_ in sessions})

    def _last_of(self, line: JournalLine) -> dict[str, int] | None:
        """The last number of each stream in a row, by what it is called there; None: the row does not read."""
        try:
            return {name: encoded[-1].n for name, encoded in _split(line).items()}
        except RowUndecodable as error:
            log.error("%s", error)
            return None

    def _add(self, n: int, members: tuple[str, ...], waiting: dict[str, int], sessions: Mapping[str, str]) -> None:
        self._rows[n] = _Row(members, waiting)
        if not waiting:
            self._finished.add(n)
        for message_id in members:
            self._rows_of.setdefault(message_id, deque()).append(n)
            self._session_of[message_id] = sessions.get(message_id, "")

    # While a transaction runs

    def knows(self, message_id: str) -> bool:
        """Whether a row holds chunks of this stream, so that its message was looked up before."""
        return message_id in self._rows_of

    def name(self, message_id: str) -> str:
        """What rows call this stream."""
        name = self._name_of.get(message_id)
        if name is None:
            short = short_name(message_id)
            name = message_id if short is None or short in self._taken else short
            self._name_of[message_id] = name
            self._taken.add(name)
        return name

    def accept(self, session_id: str, message_id: str, entries: Sequence[JournalEntry]) -> None:
        """Chunks of a unit whose guards hold: they go into this commit's row."""
        self._accepted.setdefault(message_id, []).extend(entries)
        self._accepted_session[message_id] = session_id

    def fold(self, message_id: str, through: int) -> bool:
        """The stream's parts hold everything through this chunk. True when its mark must be stored for it."""
        self._passed[message_id] = through
        entries = self._accepted.get(message_id)
        if entries:
            kept = [entry for entry in entries if entry.n > through]
            if kept:
                self._accepted[message_id] = kept
            else:
                del self._accepted[message_id]
        return message_id in self._rows_of

    def forget(self, session_id: str) -> tuple[list[str], list[int]]:
        """A session goes: its streams, and the journal rows that hold chunks of them."""
        gone = [id_ for id_, owner in self._session_of.items() if owner == session_id]
        for message_id in [id_ for id_, owner in self._accepted_session.items() if owner == session_id]:
            self._accepted.pop(message_id, None)
        return gone, sorted({n for message_id in gone for n in self._rows_of.get(message_id, ())})

    def strike(self, n: int, message_ids: Iterable[str]) -> bool:
        """Row ``n`` no longer holds these streams. True when others still wait for it."""
        row = self._rows[n]
        gone = set(message_ids)
        row.members = tuple(id_ for id_ in row.members if id_ not in gone)
        for message_id in gone:
            row.waiting.pop(message_id, None)
            self._leave(message_id, n)
        return bool(row.waiting)

    def remove(self, n: int) -> list[str]:
        """Row ``n`` goes; the streams that no other row holds, whose marks may go with it."""
        self._finished.discard(n)
        return [message_id for message_id in self._rows.pop(n).members if self._leave(message_id, n)]

    def _leave(self, message_id: str, n: int) -> bool:
        """The stream left row ``n``; True when that was its last one."""
        rows = self._rows_of.get(message_id)
        if rows is None:
            return False
        if n in rows:
            rows.remove(n)
        if rows:
            return False
        del self._rows_of[message_id]
        self._session_of.pop(message_id, None)
        self._taken.discard(self._name_of.pop(message_id, message_id))
        return True

    # Before the commit

    @property
    def accepted(self) -> Mapping[str, Sequence[JournalEntry]]:
        """The chunks of the row that this commit adds, by message."""
        return self._accepted

    @property
    def passed(self) -> Mapping[str, int]:
        """Through where this commit folds streams."""
        return self._passed

    @property
    def is_untouched(self) -> bool:
        """Whether this commit neither adds chunks nor folds any, and no row waits to be taken away."""
        return not (self._accepted or self._passed or self._finished)

    def row(self, n: int) -> tuple[bytes, list[Mark]] | None:
        """The row that commit ``n`` adds: its text, and the marks of the streams that are new to the journal."""
        if not self._accepted:
            return None
        names = self._name_of
        rows: list[JournalRow] = [
            (names.get(message_id) or self.name(message_id), *entry)
            for message_id, entries in self._accepted.items()
            for entry in entries
        ]
        # Everything before the first chunk that is journalled stands in the parts.
        begins = {id_: entries[0].n - 1 for id_, entries in self._accepted.items() if id_ not in self._rows_of}
        new = [Mark(id_, self._accepted_session[id_], at, mark_crc(id_, at, names[id_])) for id_, at in begins.items()]
        waiting = {message_id: entries[-1].n for message_id, entries in self._accepted.items()}
        self._add(n, tuple(waiting), waiting, self._accepted_session)
        return encode_rows(rows), new

    def done(self) -> tuple[list[tuple[int, int]], list[str]]:
        """What goes with this commit: journal rows, as ranges, and marks of streams no row holds any more.

        Rows go from the first on, as far as nobody needs them: one taken out between others would have its page written
        now and with each of its neighbours again. Where one stream holds up many, they go from between.
        """
        for message_id, through in self._passed.items():
            for n in self._rows_of.get(message_id, ()):
                waiting = self._rows[n].waiting
                if message_id in waiting and waiting[message_id] <= through:
                    del waiting[message_id]
                    if not waiting:
                        self._finished.add(n)
        if len(self._finished) > _MOST_FINISHED:
            finished = sorted(self._finished)
        else:
            finished = list(itertools.takewhile(self._finished.__contains__, self._rows)) if self._finished else []
        unmarked = [message_id for n in finished for message_id in self.remove(n)]
        self._accepted.clear()
        self._accepted_session.clear()
        self._passed.clear()
        return _ranges(finished), unmarked


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for n in numbers:
        if ranges and ranges[-1][1] == n - 1:
            ranges[-1] = (ranges[-1][0], n)
        else:
            ranges.append((n, n))
    return ranges
