"""The stored state of a turn's stream: how much of its message is stored, by chunk number, and whether it is running.

All of it is read as of one moment; only then do the stored parts and the journal fit together.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clew.store.base import Moment, Store
from clew.store.unit import JournalEntry
from clew.transcript.message import MessageRow, shown_message
from clew.transcript.turn import Turn
from clew.transcript.turn_state import TurnStatus

__all__ = ["StreamState", "load_stream_state", "load_stream_tail"]

_ACTIVE: Final = frozenset[TurnStatus]({"running", "retrying", "compacting"})


class StreamState(msgspec.Struct, frozen=True):
    """The stored state of a turn's message. ``folded`` is the last chunk in its parts; None if unknown.

    ``entries`` are the journaled chunks after it. Without ``message`` nothing of an answer is stored yet.
    """

    epoch: int
    turn: Turn
    asked_id: str | None
    message: MessageRow | None = None
    folded: int | None = None
    entries: tuple[JournalEntry, ...] = ()
    is_last: bool = True

    @property
    def runs(self) -> bool:
        """Return whether a run is still writing this message, in whichever replica."""
        return self.turn.status in _ACTIVE and self.is_last

    @property
    def metadata(self) -> dict[str, Any]:
        """The metadata that viewers get at the start of the message."""
        about = {"turn_id": self.turn.id, "user_message_id": self.asked_id}
        return about if self.message is None else {**shown_message(self.message, self.turn.id).metadata, **about}


async def load_stream_state(
    store: Store, session_id: str, turn_id: str | None = None, message_id: str | None = None
) -> StreamState | None:
    """Load the stored state of a session's open turn, or of the one given, and its newest message, or the one given.

    None if there is no such turn.
    """

    async def ask(moment: Moment) -> StreamState | None:
        state = await moment.load_state(session_id)
        through = turn_id or state.open_turn_id
        if through is None or await moment.find_turn(through) is None:
            return None
        entry = (await moment.load_line(session_id, through=through, turns=1, keep_damaged=True)).turns[-1]
        turn, rows = entry.turn, entry.messages
        user_message_id = next((row.id for row in rows if row.role == "user"), None)
        seen = StreamState(state.epoch, turn, user_message_id)
        pending = {stream.message.id: stream for stream in await moment.pending_streams(session_id)}
        if message_id is not None:
            row = next((row for row in rows if row.id == message_id), None)
        else:
            row = rows[-1] if rows and rows[-1].role == "assistant" else None
            is_active = turn.status in _ACTIVE and row is not None and row.id not in pending
            if is_active and row is not None and row.id in await moment.seals(session_id):
                row = None  # it has ended, and the next one has no chunk yet
        if row is None:
            return seen
        stream = pending.get(row.id)
        folded: int | None
        entries: tuple[JournalEntry, ...] = ()
        if stream is not None and stream.entries:
            row, folded, entries = stream.message, stream.entries[0].n - 1, stream.entries
        else:
            # Some stores keep no mark for a stream without journaled chunks.
            folded = (await moment.load_tail(session_id, row.id)).folded
        is_last = rows[-1].id == row.id
        return msgspec.structs.replace(seen, message=row, folded=folded, entries=entries, is_last=is_last)

    return await store.at_once(session_id, ask)


async def load_stream_tail(
    store: Store, session_id: str, turn_id: str, epoch: int, message_id: str, after: int
) -> tuple[JournalEntry, ...]:
    """Load the journaled chunks after a number, without the message, while the same run continues the same turn.

    Empty if there are none, if chunks in between are already in the parts, or if that run has ended.
    """

    async def ask(moment: Moment) -> tuple[JournalEntry, ...]:
        state, turn = await moment.load_state(session_id), await moment.find_turn(turn_id)
        tail = await moment.load_tail(session_id, message_id)
        is_same = turn is not None and turn.status in _ACTIVE and (state.epoch, state.open_turn_id) == (epoch, turn_id)
        is_active = is_same and tail.folded is not None and tail.folded <= after
        return tuple(entry for entry in tail.entries if entry.n > after) if is_active else ()

    return await store.at_once(session_id, ask)
