"""Journal tails in memory: what the writer of this process has put into the journal and no part holds yet.

A row of the journal holds chunks of every stream, so whoever reads one session from the rows goes through those of all.
The owner's readers look here first. What is told is what the rows say in the state the reader sees: entries are noted
before their commit, under its number, and a reader takes those up to the commit it sees. Whatever is not certain (the
stream began before this process, others wrote, a fold came in between) is None, and is read from the rows.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from clew.store.sql.journal import Tail
from clew.store.sql.marks import Mark
from clew.store.unit import JournalEntry

__all__ = ["MOST_BYTES", "Tails"]

MOST_BYTES: Final = 32 * 1024 * 1024
"""So much text of rows is remembered. Beyond it all is forgotten, and known again from each stream's next fold on."""


class _Stream(msgspec.Struct):
    """Entries above ``through``, without a gap, each with the number of its commit."""

    through: int
    entries: list[tuple[int, JournalEntry]]
    bytes: int = 0


class Tails:
    """What the writer notes, in its thread, and readers find in theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}
        self._bytes = 0

    def clear(self) -> None:
        """Nothing that is remembered holds any more."""
        with self._lock:
            self._streams.clear()
            self._bytes = 0

    def note(
        self, commit: int, added: Mapping[str, Sequence[JournalEntry]], folded: Mapping[str, int], size: int
    ) -> None:
        """What the commit under way adds to the journal, as ``size`` bytes, and through where parts hold streams."""
        with self._lock:
            for message_id, through in folded.items():
                stream = self._streams.get(message_id)
                if stream is not None:
                    self._bytes -= stream.bytes
                    stream.through = max(stream.through, through)
                    stream.entries = [(n, entry) for n, entry in stream.entries if entry.n > through]
                    stream.bytes = 0
            share = size // max(sum(map(len, added.values())), 1)
            for message_id, entries in added.items():
                stream = self._streams.get(message_id)
                if stream is None:
                    stream = self._streams[message_id] = _Stream(entries[0].n - 1, [])
                stream.entries += [(commit, entry) for entry in entries]
                stream.bytes += share * len(entries)
                self._bytes += share * len(entries)
            if self._bytes > MOST_BYTES:
                self._streams.clear()
                self._bytes = 0

    def forget(self, message_ids: Sequence[str]) -> None:
        """No row holds anything of these streams any more."""
        if message_ids:
            with self._lock:
                for message_id in message_ids:
                    stream = self._streams.pop(message_id, None)
                    self._bytes -= stream.bytes if stream is not None else 0

    def find(self, mark: Mark, commit: int) -> Tail | None:
        """What the journal holds of a stream above its mark, both as they were after ``commit``; None: not known."""
        with self._lock:
            stream = self._streams.get(mark.message_id)
            if stream is None or not mark.is_sound or mark.folded_through < stream.through:
                return None
            entries = [entry for n, entry in stream.entries if n <= commit and entry.n > mark.folded_through]
        return Tail(entries, entries[-1].n if entries else mark.folded_through)
