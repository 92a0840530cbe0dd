"""The journal of a store with one writer: one row per commit, with the chunks of every stream in it.

The writer keeps track of the rows in its book; commits are numbered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from clew.errors import InternalError, RowUndecodable
from clew.store.sql.journal import JournalBook, decode_entries, row_crc
from clew.store.sql.marks import mark_crc, to_mark
from clew.store.sql.messages import messages_ending
from clew.store.sql.statements import Statements
from clew.store.sql.tails import Tails
from clew.store.unit import JournalEntry
from clew.transcript.chunk import encode_rows

__all__ = ["CommitJournal"]


class CommitJournal:
    """See :class:`clew.store.sql.apply.Journal`. ``commit`` is the number of the newest commit."""

    def __init__(self, statements: Statements) -> None:
        self._sql = statements
        self._book = JournalBook()
        self.tails = Tails()
        self._struck = False
        self.commit = 0

    def reset(self) -> None:
        self.tails.clear()
        marks = {mark.message_id: mark for mark in map(to_mark, self._sql.rows("load_marks", {}))}
        lines = ((n, data, crc) for n, data, crc in self._sql.rows("load_journal", {}))
        self._book.load(lines, marks, lambda ends: messages_ending(self._sql, ends))
        self._struck = False
        found = self._sql.first("get_commits", {})
        if found is None:
            raise InternalError("the row that counts the commits of the store is missing; restore a backup")
        self.commit = found[0]

    def knows(self, message_id: str) -> bool:
        return self._book.knows(message_id)

    def accept(self, session_id: str, message_id: str, entries: Sequence[JournalEntry]) -> None:
        self._book.accept(session_id, message_id, entries)

    def fold(self, session_id: str, message_id: str, through: int) -> None:
        if self._book.fold(message_id, through):
            crc = mark_crc(message_id, through, self._book.name(message_id))
            self._sql.run("set_mark", {"message_id": message_id, "folded_through": through, "crc": crc})

    def flush(self) -> None:
        pass

    def finish(self) -> None:
        """Number the commit, add the journal row of the accepted chunks, and remove rows that all streams have passed.

        The number is part of the journal row, if there is one, at no extra cost. A row is removed only by a commit that
        stores its own number, so the higher of both is always the newest commit.
        """
        self.commit += 1
        if self._book.is_untouched:
            # The case of most commits without streams.
            self._sql.run("set_commits", {"commits": self.commit})
            self._struck = False
            return
        row = self._book.row(self.commit)
        self.tails.note(self.commit, self._book.accepted, self._book.passed, len(row[0]) if row is not None else 0)
        if row is not None:
            data, new = row
            crc = row_crc(self.commit, data)
            self._sql.run("insert_journal_row", {"n": self.commit, "data": data.decode(), "crc": crc})
            for mark in new:
                self._sql.run("add_mark", mark._asdict())
        ranges, unmarked = self._book.done()
        for first, last in ranges:
            self._sql.run("delete_journal_rows", {"first": first, "last": last})
        for message_id in unmarked:
            self._sql.run("delete_mark", {"message_id": message_id})
        self.tails.forget(unmarked)
        if row is None or ranges or self._struck:
            self._sql.run("set_commits", {"commits": self.commit})
        self._struck = False

    def delete_session(self, session_id: str) -> None:
        self._struck = True
        streams, numbers = self._book.forget(session_id)
        self.tails.forget(streams)
        names = {self._book.name(message_id) for message_id in streams}
        for n in numbers:
            if self._book.strike(n, streams):
                self._rewrite(n, names)
            else:
                self._sql.run("delete_journal_rows", {"first": n, "last": n})
                for message_id in self._book.remove(n):
                    self._sql.run("delete_mark", {"message_id": message_id})
        for message_id in streams:
            self._sql.run("delete_mark", {"message_id": message_id})

    def _rewrite(self, n: int, without: Collection[str]) -> None:
        """Remove the chunks of some streams, by their names in rows, from a row that other streams still need."""
        row = self._sql.first("get_journal_row", {"n": n})
        if row is None:
            raise InternalError("a journal row is missing", n=n)
        try:
            streams = decode_entries((row[0], row[1], row[2]))
        except RowUndecodable:
            return  # the whole row is removed once the other streams are folded
        remaining = [
            (name, entry.n, entry.part, entry.chunk)
            for name, entries in streams.items()
            if name not in without
            for entry in entries
        ]
        data = encode_rows(remaining)
        self._sql.run("replace_journal_row", {"n": n, "data": data.decode(), "crc": row_crc(n, data)})
