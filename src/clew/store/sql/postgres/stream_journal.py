"""The journal of a store with many writers: each row is of one stream, protected by its session's lock.

So no writer caches what the rows hold, and no process reads rows of another process's streams.
"""

from __future__ import annotations

from collections.abc import Sequence

from clew.store.sql.journal import row_crc
from clew.store.sql.marks import mark_crc
from clew.store.sql.statements import Statements
from clew.store.unit import JournalEntry
from clew.transcript.chunk import encode_rows

__all__ = ["StreamJournal"]


class StreamJournal:
    """See :class:`clew.store.sql.apply.Journal`."""

    def __init__(self, statements: Statements) -> None:
        self._sql = statements
        self._accepted: dict[str, tuple[str, list[JournalEntry]]] = {}
        self._folded: dict[str, tuple[str, int]] = {}

    def reset(self) -> None:
        self._accepted.clear()
        self._folded.clear()

    def knows(self, message_id: str) -> bool:
        return True  # the row is inserted only if its message exists

    def accept(self, session_id: str, message_id: str, entries: Sequence[JournalEntry]) -> None:
        self._accepted.setdefault(message_id, (session_id, []))[1].extend(entries)

    def fold(self, session_id: str, message_id: str, through: int) -> None:
        self._folded[message_id] = (session_id, through)

    def flush(self) -> None:
        for message_id, (session_id, through) in self._folded.items():
            mark = {"message_id": message_id, "session_id": session_id, "through": through}
            self._sql.run("fold_journal", {**mark, "crc": mark_crc(message_id, through)})
        for message_id, (session_id, entries) in self._accepted.items():
            folded = self._folded.get(message_id, (session_id, 0))[1]
            remaining = [(message_id, entry.n, entry.part, entry.chunk) for entry in entries if entry.n > folded]
            if remaining:
                # With full ids: an older clew may serve the same database and take over the session.
                before, n, data = remaining[0][1] - 1, remaining[-1][1], encode_rows(remaining, in_full=True)
                row = {"message_id": message_id, "session_id": session_id, "n": n, "data": data.decode()}
                crcs = {"crc": row_crc(n, data), "before": before, "mark_crc": mark_crc(message_id, before)}
                self._sql.run("append_chunks", {**row, **crcs})
        self.reset()

    def finish(self) -> None:
        pass

    def delete_session(self, session_id: str) -> None:
        self._sql.run("delete_journal_of_session", {"id": session_id})
