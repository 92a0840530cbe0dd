"""Journal tails in memory: journalled chunks of this process's writer that no part holds yet.

A row of the journal holds chunks of many streams, so reading one session from the rows reads all of them. Readers in
the owner's process check this cache first. It matches the rows in the state that the reader sees: entries are added
before their commit, with its number, and a reader uses those up to the commit it sees. Anything uncertain (the stream
began before this process, another process wrote, a fold happened in between) yields None, and the rows are read.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from clew.store.sql.journal import Mark, Tail
from clew.store.unit import JournalEntry

__all__ = ["MAX_BYTES", "Tails"]

MAX_BYTES: Final = 32 * 1024 * 1024
"""Maximum size of cached row text. Beyond it the cache is cleared, and refills with each stream's next fold."""


class _Stream(msgspec.Struct):
    """Entries above ``through``, without a gap, each with the number of its commit."""

    through: int
    entries: list[tuple[int, JournalEntry]]
    bytes: int = 0


class Tails:
    """A cache that the writer fills in its thread and readers use in theirs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._streams: dict[str, _Stream] = {}
        self._bytes = 0

    def clear(self) -> None:
        """Drop everything: nothing in the cache is valid any more."""
        with self._lock:
            self._streams.clear()
            self._bytes = 0

    def note(
        self, commit: int, added: Mapping[str, Sequence[JournalEntry]], folded: Mapping[str, int], size: int
    ) -> None:
        """Add what the current commit journals, ``size`` bytes of text, and how far the parts now hold streams."""
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
            if self._bytes > MAX_BYTES:
                self._streams.clear()
                self._bytes = 0

    def forget(self, message_ids: Sequence[str]) -> None:
        """Drop streams that no row holds any more."""
        if message_ids:
            with self._lock:
                for message_id in message_ids:
                    stream = self._streams.pop(message_id, None)
                    self._bytes -= stream.bytes if stream is not None else 0

    def find(self, mark: Mark, commit: int) -> Tail | None:
        """Return what the journal holds of a stream above its mark, both as of ``commit``; None if unknown."""
        with self._lock:
            stream = self._streams.get(mark.message_id)
            if stream is None or not mark.is_sound or mark.folded_through < stream.through:
                return None
            entries = [entry for n, entry in stream.entries if n <= commit and entry.n > mark.folded_through]
        return Tail(entries, entries[-1].n if entries else mark.folded_through)
