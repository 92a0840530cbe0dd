"""The journal's bookkeeping: which rows hold which streams, how far each stream is folded, and which rows can be
removed.

Each commit writes one journal row with the chunks of every stream that it accepted. The writer keeps the book in
memory; after a rollback it is read again from the rows. :mod:`clew.store.sql.journal` defines how rows name streams.

A row names every stream it holds. To be short, it uses the end of the message's id, unless another stream in the
journal has that name already. The checksum of the stream's mark covers the name, so it shows which of the two names is
used: a name is assigned to the one stream whose mark confirms it, never to one that merely ends the same.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

import msgspec

from clew.errors import IllegalChunk, RowUndecodable
from clew.ids import is_message_id
from clew.store.unit import JournalEntry
from clew.transcript.chunk import EncodedRow, JournalRow, encode_rows, parse_row, split_rows

log = logging.getLogger("clew.store")

__all__ = ["Mark", "mark_crc", "messages_of", "short_name", "streams_by_name", "to_mark"]


JournalLine = tuple[int, bytes, int | None]
"""A stored row: its number, text and checksum; rows of older files have no checksum."""
_DAMAGED_MARK: Final = "its mark in the journal is damaged: what came after its stored parts is lost"
_MAY_HAVE_GAP: Final = "a row of the journal cannot be decoded: this stream may have lost its end"
_GAP: Final = "a row of the journal cannot be decoded: this stream has lost its end"
_MAX_FINISHED: Final = 1_024
_SHORT_PREFIX: Final = "~"
"""Prefix of a short name. No id contains it."""
_SHORT_LENGTH: Final = 8
_Ending: TypeAlias = Callable[[Collection[str]], Iterable[str]]
"""Returns the ids of all messages that end in one of these."""


class Tail(msgspec.Struct):
    """The journalled chunks of a stream above its mark, up to the first gap.

    ``last`` is the highest number found; ``damage`` says why there may have been more entries.
    """

    entries: list[JournalEntry]
    last: int
    damage: str | None = None


def row_crc(n: int, data: bytes) -> int:
    """Return the checksum of a row, its number included."""
    return crc32(data, n & 0xFFFFFFFF)


def _split(line: JournalLine) -> dict[str, list[EncodedRow]]:
    """Split a journal row into the entries of its streams by name, without decoding chunks."""
    n, data, crc = line
    streams: dict[str, list[EncodedRow]] = {}
    try:
        if crc is not None and crc != row_crc(n, data):
            raise RowUndecodable("its checksum does not match")
        for row in split_rows(data):
            streams.setdefault(row.stream, []).append(row)
    except (msgspec.DecodeError, RowUndecodable, TypeError, ValueError) as error:
        raise RowUndecodable(f"row {n} of the journal cannot be decoded: {error}", row=n) from error
    return streams


def _entries(n: int, encoded: Iterable[EncodedRow]) -> list[JournalEntry]:
    try:
        return [JournalEntry(row.n, row.part, parse_row(row)) for row in encoded]
    except (msgspec.DecodeError, IllegalChunk, TypeError, ValueError) as error:
        raise RowUndecodable(f"row {n} of the journal cannot be decoded: {error}", row=n) from error


def decode_entries(line: JournalLine) -> dict[str, list[JournalEntry]]:
    """Decode a journal row into the chunks of its streams, by name."""
    return {name: _entries(line[0], encoded) for name, encoded in _split(line).items()}


def read_tails(lines: Iterable[JournalLine], marks: Iterable[Mark], ending: _Ending | None = None) -> dict[str, Tail]:
    """Return what the journal holds of the streams with a mark; with ``ending`` also of those without.

    A row that cannot be decoded loses its content: a stream ends before the first missing number. Which streams were in
    the row is unknown, so every stream that does not appear in a later row may have lost its end. Chunks of other
    streams are skipped without decoding.
    """
    known = {mark.message_id: mark for mark in marks}
    names = streams_by_name(known.values())
    tails = {mark.message_id: Tail([], mark.folded_through) for mark in known.values()}
    # The names that a stream with a damaged mark may have. No chunks are assigned by them, but they show how far the
    # stream went.
    possible_names: dict[str, str] = {}
    for id_, mark in known.items():
        if not mark.is_sound:
            tails[id_].damage = _DAMAGED_MARK
            possible_names |= {id_: id_, short_name(id_) or id_: id_}
    strays: dict[str, int] = {}
    for line in lines:
        try:
            streams = _split(line)
            found = {name: _entries(line[0], streams[name]) for name in streams.keys() & names.keys()}
        except RowUndecodable:
            for tail in tails.values():
                tail.damage = tail.damage or _MAY_HAVE_GAP
            continue
        for name, entries in found.items():
            _extend(tails[names[name]], known[names[name]], entries)
        for name in streams.keys() - names.keys():
            strays[name] = max(strays.get(name, 0), streams[name][-1].n)
    for name in strays.keys() & possible_names.keys():
        tails[possible_names[name]].last = max(tails[possible_names[name]].last, strays[name])
    for name, message_ids in messages_of(strays, known, ending).items() if ending is not None else ():
        for id_ in message_ids:
            tail = tails.setdefault(id_, Tail([], 0, "its mark in the journal is lost, and its end with it"))
            if not tail.entries:  # else it uses its whole id, and the name is another stream's
                tail.last = max(tail.last, strays[name])
                tail.damage = tail.damage or _DAMAGED_MARK
    return {id_: tail for id_, tail in tails.items() if tail.entries or tail.damage}


def _extend(tail: Tail, mark: Mark, entries: Sequence[JournalEntry]) -> None:
    above = [entry for entry in entries if entry.n > mark.folded_through]
    if not above:
        return
    # Marks of older files do not record where a stream begins in the journal.
    begins = not tail.entries and mark.crc is None and mark.folded_through == 0
    if tail.damage not in (None, _MAY_HAVE_GAP):
        tail.last = max(tail.last, above[-1].n)
        return
    if above[0].n != tail.last + 1 and not begins:
        tail.damage = _GAP
    else:
        tail.entries += above
        tail.damage = None
    tail.last = above[-1].n


class _Row(msgspec.Struct):
    """A journal row in the book: all its streams, and the last chunk of those not folded past it yet."""

    members: tuple[str, ...]
    waiting: dict[str, int]


class JournalBook:
    """The writer's knowledge of the journal between two commits, and the additions of the current commit."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._finished: set[int] = set()
        self._rows_of: dict[str, deque[int]] = {}
        self._session_of: dict[str, str] = {}
        self._name_of: dict[str, str] = {}
        self._used_names: set[str] = set()
        """Names used by rows or marks; none is given to another stream."""
        self._accepted: dict[str, list[JournalEntry]] = {}
        self._accepted_session: dict[str, str] = {}
        self._passed: dict[str, int] = {}

    def load(self, lines: Iterable[JournalLine], marks: Mapping[str, Mark], ending: _Ending) -> None:
        """Start over from the stored rows and marks."""
        self.__init__()  # type: ignore[misc]
        sessions = {id_: mark.session_id for id_, mark in marks.items()}
        names = {name: [id_] for name, id_ in streams_by_name(marks.values()).items()}
        last_numbers = [(line[0], self._last_of(line)) for line in lines]
        strays = {name for _, last in last_numbers for name in last or () if name not in names}
        for name, ids in messages_of(strays, marks, ending).items():
            # A name that belongs to no existing message stands for itself.
            names[name] = ids or [name]
        self._used_names.update(names)
        self._name_of = {ids[0]: name for name, ids in names.items() if len(ids) == 1}
        for n, by_name in last_numbers:
            if by_name is None:
                # It is removed once every stream that may be in it is folded, which recovery does.
                last = dict.fromkeys(marks, 0)
                waiting = dict(last)
            else:
                last = {id_: top for name, top in by_name.items() for id_ in names[name]}
                waiting = {id_: top for id_, top in last.items() if id_ not in marks or top > marks[id_].folded_through}
            self._add(n, tuple(last), waiting, {id_: sessions[id_] for id_ in last if id_ in sessions})

    def _last_of(self, line: JournalLine) -> dict[str, int] | None:
        """Return the last number of each stream in a row, by name; None when the row cannot be decoded."""
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
        """Return whether a row holds chunks of this stream, so that its message was looked up before."""
        return message_id in self._rows_of

    def name(self, message_id: str) -> str:
        """Return the name of this stream in rows."""
        name = self._name_of.get(message_id)
        if name is None:
            short = short_name(message_id)
            name = message_id if short is None or short in self._used_names else short
            self._name_of[message_id] = name
            self._used_names.add(name)
        return name

    def accept(self, session_id: str, message_id: str, entries: Sequence[JournalEntry]) -> None:
        """Add the chunks of a unit whose guards hold to this commit's row."""
        self._accepted.setdefault(message_id, []).extend(entries)
        self._accepted_session[message_id] = session_id

    def fold(self, message_id: str, through: int) -> bool:
        """Record that the stream's parts hold everything through this chunk. Return whether its mark must be stored."""
        self._passed[message_id] = through
        entries = self._accepted.get(message_id)
        if entries:
            remaining = [entry for entry in entries if entry.n > through]
            if remaining:
                self._accepted[message_id] = remaining
            else:
                del self._accepted[message_id]
        return message_id in self._rows_of

    def forget(self, session_id: str) -> tuple[list[str], list[int]]:
        """Remove a session; return its streams, and the journal rows that hold chunks of them."""
        gone = [id_ for id_, owner in self._session_of.items() if owner == session_id]
        for message_id in [id_ for id_, owner in self._accepted_session.items() if owner == session_id]:
            self._accepted.pop(message_id, None)
        return gone, sorted({n for message_id in gone for n in self._rows_of.get(message_id, ())})

    def strike(self, n: int, message_ids: Iterable[str]) -> bool:
        """Remove these streams from row ``n``. Return whether other streams still need it."""
        row = self._rows[n]
        gone = set(message_ids)
        row.members = tuple(id_ for id_ in row.members if id_ not in gone)
        for message_id in gone:
            row.waiting.pop(message_id, None)
            self._leave(message_id, n)
        return bool(row.waiting)

    def remove(self, n: int) -> list[str]:
        """Remove row ``n``; return the streams that no other row holds, whose marks can be removed too."""
        self._finished.discard(n)
        return [message_id for message_id in self._rows.pop(n).members if self._leave(message_id, n)]

    def _leave(self, message_id: str, n: int) -> bool:
        """Remove the stream from row ``n``; return whether that was its last row."""
        rows = self._rows_of.get(message_id)
        if rows is None:
            return False
        if n in rows:
            rows.remove(n)
        if rows:
            return False
        del self._rows_of[message_id]
        self._session_of.pop(message_id, None)
        self._used_names.discard(self._name_of.pop(message_id, message_id))
        return True

    # Before the commit

    @property
    def accepted(self) -> Mapping[str, Sequence[JournalEntry]]:
        """Return the chunks of the row that this commit adds, by message."""
        return self._accepted

    @property
    def passed(self) -> Mapping[str, int]:
        """Return how far this commit folds streams."""
        return self._passed

    @property
    def is_untouched(self) -> bool:
        """Return whether this commit neither adds nor folds chunks, and no row is waiting to be removed."""
        return not (self._accepted or self._passed or self._finished)

    def row(self, n: int) -> tuple[bytes, list[Mark]] | None:
        """Return the row that commit ``n`` adds: its text, and the marks of the streams that are new to the journal."""
        if not self._accepted:
            return None
        names = self._name_of
        rows: list[JournalRow] = [
            (names.get(message_id) or self.name(message_id), *entry)
            for message_id, entries in self._accepted.items()
            for entry in entries
        ]
        # The parts hold everything before the first journalled chunk.
        begins = {id_: entries[0].n - 1 for id_, entries in self._accepted.items() if id_ not in self._rows_of}
        new = [Mark(id_, self._accepted_session[id_], at, mark_crc(id_, at, names[id_])) for id_, at in begins.items()]
        waiting = {message_id: entries[-1].n for message_id, entries in self._accepted.items()}
        self._add(n, tuple(waiting), waiting, self._accepted_session)
        return encode_rows(rows), new

    def done(self) -> tuple[list[tuple[int, int]], list[str]]:
        """Return what this commit removes: journal rows, as ranges, and marks of streams that no row holds any more.

        Rows are removed from the first one on, up to one still needed: removing one in between would write its page
        now, and again with each of its neighbours. When one stream blocks many rows, those in between are removed too.
        """
        for message_id, through in self._passed.items():
            for n in self._rows_of.get(message_id, ()):
                waiting = self._rows[n].waiting
                if message_id in waiting and waiting[message_id] <= through:
                    del waiting[message_id]
                    if not waiting:
                        self._finished.add(n)
        if len(self._finished) > _MAX_FINISHED:
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


def short_name(message_id: str) -> str | None:
    """Return the short name of a stream; None for ids that clew did not make."""
    return _SHORT_PREFIX + message_id[-_SHORT_LENGTH:] if is_message_id(message_id) else None


def _ending_of(name: str) -> str | None:
    """Return the end of the message id that this short name stands for; None for a whole id."""
    return name[1:] if name.startswith(_SHORT_PREFIX) else None


def mark_crc(message_id: str, folded_through: int, name: str | None = None) -> int:
    """Return the checksum of a mark; ``name`` is the stream's name in rows, if it is not its message's id."""
    text = f"{message_id} {folded_through}"
    return crc32((text if name is None or name == message_id else f"{text} {name}").encode())


class Mark(NamedTuple):
    """A stored mark: how far the parts hold a stream."""

    message_id: str
    session_id: str
    folded_through: int
    crc: int | None

    @property
    def name(self) -> str | None:
        """Return the name of the stream in rows; None when the mark is damaged and the name unknown."""
        if self.crc is None or self.crc == mark_crc(self.message_id, self.folded_through):
            return self.message_id
        short = short_name(self.message_id)
        is_short = short is not None and self.crc == mark_crc(self.message_id, self.folded_through, short)
        return short if is_short else None

    @property
    def is_sound(self) -> bool:
        return self.name is not None


def to_mark(row: Sequence[Any]) -> Mark:
    """Convert a row to a mark; unexpected values make it a damaged one."""
    message_id, session_id, folded_through, crc = row
    if isinstance(message_id, str) and isinstance(folded_through, int):
        return Mark(message_id, session_id, folded_through, crc)
    return Mark(str(message_id), str(session_id), 0, -1)


def streams_by_name(marks: Iterable[Mark]) -> dict[str, str]:
    """Return the streams with an intact mark, by their names in rows."""
    return {name: mark.message_id for mark in marks if (name := mark.name) is not None}


def messages_of(strays: Collection[str], marks: Mapping[str, Mark], ending: _Ending) -> dict[str, list[str]]:
    """Return the messages that each of these names may belong to, when no intact mark says so.

    A stream with an intact mark uses the name its mark confirms, so an unknown name is another stream's. A mark without
    a checksum, as older versions wrote them, says nothing about short names, which did not exist then.
    """
    found: dict[str, list[str]] = {name: [name] if _ending_of(name) is None else [] for name in strays}
    ends = {end for name in strays if (end := _ending_of(name)) is not None}
    for message_id in ending(ends) if ends else ():
        name = short_name(message_id)
        mark = marks.get(message_id)
        if name in found and (mark is None or mark.crc is None or not mark.is_sound):
            found[name].append(message_id)
    return found
