"""What of a session is not over, as a store answers it: calls without a result, messages that wait, streams to fold."""

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
    """A stream with chunks above its mark: what recovery has to fold.

    ``last`` is the highest number that is known of it, where that is not its last entry's; ``damage`` says why there
    may have been more of it than its entries.
    """

    session_id: str
    message: MessageRow
    entries: tuple[JournalEntry, ...]
    last: int | None = None
    damage: str | None = None
