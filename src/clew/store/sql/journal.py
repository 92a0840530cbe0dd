"""The journal's bookkeeping: which rows hold which streams, how far each stream is folded, and which rows may go.

One journal row is written per commit, with the chunks of every stream that were accepted in it. The book is kept
by the writer, in memory, beside the rows; when a transaction is rolled back it is read again from them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from clew.errors import IllegalChunk, RowUndecodable
from clew.store.unit import JournalEntry
from clew.transcript.chunk import JournalRow, decode_rows, encode_rows

__all__ = ["JournalBook", "decode_entries"]


def decode_entries(data: bytes | str) -> dict[str, list[JournalEntry]]:
    """A journal row as its streams' chunks, by message."""
    streams: dict[str, list[JournalEntry]] = {}
    try:
        for message_id, n, index, chunk in decode_rows(data):
            streams.setdefault(message_id, []).append(JournalEntry(n, index, chunk))
    except (msgspec.DecodeError, IllegalChunk, TypeError, ValueError) as error:
        raise RowUndecodable(f"a row of the journal is not readable: {error}") from error
    return streams


class _Row(msgspec.Struct):
    """A journal row as the book knows it: all its streams, and the last chunk of those not past it yet."""

    members: tuple[str, ...]
    waiting: dict[str, int]


class JournalBook:
    """What the writer knows of the journal between two commits, and what the commit under way adds to it."""

    def __init__(self) -> None:
        self._rows: dict[int, _Row] = {}
        self._rows_of: dict[str, deque[int]] = {}
        self._session_of: dict[str, str] = {}
        self._next = 1
        self._accepted: dict[str, list[JournalEntry]] = {}
        self._accepted_session: dict[str, str] = {}
        self._passed: dict[str, int] = {}

    def load(self, rows: Iterable[tuple[int, str]], marks: Mapping[str, tuple[str, int]]) -> None:
        """Start over from the stored rows and marks."""
        self.__init__()  # type: ignore[misc]
        for n, data in rows:
            last = {message_id: entries[-1].n for message_id, entries in decode_entries(data).items()}
            waiting = {id_: top for id_, top in last.items() if top > marks.get(id_, ("", 0))[1]}
            self._add(n, tuple(last), waiting, {id_: marks[id_][0] for id_ in last if id_ in marks})

    def _add(self, n: int, members: tuple[str, ...], waiting: dict[str, int], sessions: Mapping[str, str]) -> None:
        self._rows[n] = _Row(members, waiting)
        self._next = n + 1
        for message_id in members:
            self._rows_of.setdefault(message_id, deque()).append(n)
            self._session_of[message_id] = sessions.get(message_id, "")

    # While a transaction runs

    def knows(self, message_id: str) -> bool:
        """Whether a row holds chunks of this stream, so that its message was looked up before."""
        return message_id in self._rows_of

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
        return True

    # Before the commit

    def row(self) -> tuple[int, str, dict[str, str]] | None:
        """The row this commit adds: its number, its text, and the streams new to the journal with their session."""
        if not self._accepted:
            return None
        rows: list[JournalRow] = [
            (message_id, entry.n, entry.part, entry.chunk)
            for message_id, entries in self._accepted.items()
            for entry in entries
        ]
        n = self._next
        new = {id_: self._accepted_session[id_] for id_ in self._accepted if id_ not in self._rows_of}
        waiting = {message_id: entries[-1].n for message_id, entries in self._accepted.items()}
        self._add(n, tuple(waiting), waiting, self._accepted_session)
        return n, encode_rows(rows).decode(), new

    def done(self) -> tuple[list[tuple[int, int]], list[str]]:
        """What may go with this commit: journal rows, as ranges, and marks of streams no row holds any more."""
        finished: list[int] = []
        for message_id, through in self._passed.items():
            for n in self._rows_of.get(message_id, ()):
                waiting = self._rows[n].waiting
                if message_id in waiting and waiting[message_id] <= through:
                    del waiting[message_id]
                    if not waiting:
                        finished.append(n)
        unmarked = [message_id for n in finished for message_id in self.remove(n)]
        self._accepted.clear()
        self._accepted_session.clear()
        self._passed.clear()
        return _ranges(sorted(finished)), unmarked


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for n in numbers:
        if ranges and ranges[-1][1] == n - 1:
            ranges[-1] = (ranges[-1][0], n)
        else:
            ranges.append((n, n))
    return ranges
