"""Pending work of a session: calls without a result, queued messages, streams to fold, and the tail of a stream.

Readers apply a tail to show everything that is durable, recovery to find what it has to write. Both use only the stored
parts and (index, chunk) pairs, because the ids a live stream held open are lost with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from clew.store.unit import JournalEntry
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import from_stream

__all__ = ["UNSTORED", "OpenCall", "PendingStream", "QueuedMessage", "StreamTail", "with_tail"]


class OpenCall(msgspec.Struct, frozen=True):
    """A tool call without a result, as the part that holds it."""

    message_id: str
    part: PartRow


class QueuedMessage(msgspec.Struct, frozen=True):
    """A message that waits for its turn."""

    message: MessageRow
    queued_at: int
    interrupt: bool


class PendingStream(msgspec.Struct, frozen=True):
    """A stream with chunks above its mark, which recovery has to fold.

    ``last`` is its highest known number, if not its last entry's; ``damage`` says why the stream may have had more
    entries.
    """

    session_id: str
    message: MessageRow
    entries: tuple[JournalEntry, ...]
    last: int | None = None
    damage: str | None = None


UNSTORED = ""
"""The id of a part that only the journal holds so far."""


class StreamTail(msgspec.Struct, frozen=True):
    """Chunks without a gap after ``folded``, the last chunk that the parts hold; None where that is unknown.

    ``last`` is the highest known number of the stream; 0 without one.
    """

    folded: int | None = None
    entries: tuple[JournalEntry, ...] = ()
    last: int = 0


def with_tail(row: MessageRow, entries: Sequence[JournalEntry]) -> MessageRow:
    """Return the message with ``entries`` applied. New parts have the id :data:`UNSTORED`."""
    if not entries:
        return row
    fold = row.fold()
    touched: set[int] = set()
    for entry in entries:
        fold.apply_at(entry.part, entry.chunk)
        if entry.part is not None:
            touched.add(entry.part)
    parts = list(row.parts)
    for index in sorted(touched):
        data = fold.part(index)
        if index < len(parts):
            parts[index] = replace(parts[index], data=data)
        else:
            parts.append(PartRow(UNSTORED, index, data, row.updated_at, row.updated_at))
    metadata = {**row.metadata, **from_stream(fold.metadata)}
    return replace(row, parts=tuple(parts), metadata=metadata)
