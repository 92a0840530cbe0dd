"""Pending work of a session, as a store returns it: calls without a result, queued messages, streams to fold."""

from __future__ import annotations

import msgspec

from clew.store.unit import JournalEntry
from clew.transcript.message import MessageRow, PartRow

__all__ = ["OpenCall", "PendingStream", "QueuedMessage"]


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
