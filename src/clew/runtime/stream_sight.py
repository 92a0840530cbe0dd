"""What the store shows of a turn's stream: how far its message is, by number, and whether it still runs.

All of it is read as of one moment. What the parts hold of a stream and what the journal holds beyond fit together only
then.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from clew.store.base import Moment, Store
from clew.store.unit import JournalEntry
from clew.transcript.message import MessageRow, shown_message
from clew.transcript.turn import Turn
from clew.transcript.turn_state import TurnStatus

__all__ = ["StreamSight", "see_stream", "see_tail"]

_RUNS: Final = frozenset[TurnStatus]({"running", "retrying", "compacting"})


class StreamSight(msgspec.Struct, frozen=True):
    """A turn and the message it makes. ``folded``: through which chunk ``message`` holds its stream; None: not known.

    ``entries`` are what the journal holds beyond. Without ``message`` nothing of an answer is stored yet.
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
        """Whether a run is at this message still, wherever."""
        return self.turn.status in _RUNS and self.is_last

    @property
    def metadata(self) -> dict[str, Any]:
        """What a viewer is told of the message at its start."""
        about = {"turn_id": self.turn.id, "user_message_id": self.asked_id}
        return about if self.message is None else {**shown_message(self.message, self.turn.id).metadata, **about}


async def see_stream(
    store: Store, session_id: str, turn_id: str | None = None, message_id: str | None = None
) -> StreamSight | None:
    """The open turn of a session, or the one named, and the message that is made in it, or the one named.

    None when there is no such turn.
    """

    async def ask(moment: Moment) -> StreamSight | None:
        state = await moment.load_state(session_id)
        through = turn_id or state.open_turn_id
        if through is None or await moment.find_turn(through) is None:
            return None
        held = (await moment.load_line(session_id, through=through, turns=1, keep_damaged=True)).turns[-1]
        turn, rows = held.turn, held.messages
        asked = next((row.id for row in rows if row.role == "user"), None)
        seen = StreamSight(state.epoch, turn, asked)
        pending = {stream.message.id: stream for stream in await moment.pending_streams(session_id)}
        if message_id is not None:
            row = next((row for row in rows if row.id == message_id), None)
        else:
            row = rows[-1] if rows and rows[-1].role == "assistant" else None
            goes_on = turn.status in _RUNS and row is not None and row.id not in pending
            if goes_on and row is not None and row.id in await moment.seals(session_id):
                row = None  # it has ended, and the next one has no chunk yet
        if row is None:
            return seen
        stream = pending.get(row.id)
        folded: int | None
        entries: tuple[JournalEntry, ...] = ()
        if stream is not None and stream.entries:
            row, folded, entries = stream.message, stream.entries[0].n - 1, stream.entries
        else:
            # A stream of which the journal holds nothing has no mark in every store.
            folded = (await moment.load_tail(session_id, row.id)).folded
        is_last = rows[-1].id == row.id
        return msgspec.structs.replace(seen, message=row, folded=folded, entries=entries, is_last=is_last)

    return await store.at_once(session_id, ask)


async def see_tail(
    store: Store, session_id: str, turn_id: str, epoch: int, message_id: str, after: int
) -> tuple[JournalEntry, ...]:
    """What the journal holds above a chunk, while the same run is at the same turn; nothing of the message is read.

    Empty when there is nothing, when chunks in between are in the parts already, or when it is not that run any more.
    """

    async def ask(moment: Moment) -> tuple[JournalEntry, ...]:
        state, turn = await moment.load_state(session_id), await moment.find_turn(turn_id)
        tail = await moment.load_tail(session_id, message_id)
        is_same = turn is not None and turn.status in _RUNS and (state.epoch, state.open_turn_id) == (epoch, turn_id)
        goes_on = is_same and tail.folded is not None and tail.folded <= after
        return tuple(entry for entry in tail.entries if entry.n > after) if goes_on else ()

    return await store.at_once(session_id, ask)
