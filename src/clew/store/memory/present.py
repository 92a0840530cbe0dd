"""The current state of a session's value, for the event log of a store: see :mod:`clew.store.facts`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from clew.store.facts import BlobName, SessionNames
from clew.store.memory.session_value import SessionValue
from clew.store.memory.tables import SharedTables
from clew.store.unit import Enqueue
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.model_call import ModelCall
from clew.transcript.part import is_growing
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session
from clew.transcript.turn import HeadMove, Step, Turn

__all__ = ["ValuePresent"]


class ValuePresent:
    """The present of sessions that are held as values. A stream's tail is in the journal, and no fact."""

    def __init__(self, values: Mapping[str, SessionValue], shared: SharedTables) -> None:
        self._values = values
        self._blobs = shared.blobs
        self._calls = shared.calls

    def session(self, session_id: str) -> tuple[Session, int]:
        value = self._values[session_id]
        return value.session, value.state["state"].epoch

    def message(self, session_id: str, message_id: str) -> tuple[MessageRow, str | None]:
        value = self._values[session_id]
        return value.messages[message_id], value.seals.get(message_id)

    def parts(self, session_id: str, message_id: str, indexes: Collection[int] | None) -> Iterable[PartRow]:
        held = self._values[session_id].messages[message_id].parts
        return [part for part in held if indexes is None or part.index in indexes]

    def growing(self, session_id: str, message_ids: Collection[str]) -> Iterable[tuple[str, int]]:
        messages = self._values[session_id].messages
        parts = [(id_, part) for id_ in sorted(message_ids) for part in messages[id_].parts]
        return [(id_, part.index) for id_, part in parts if is_growing(part.data)]

    def turn(self, session_id: str, turn_id: str) -> tuple[Turn, tuple[str, ...]]:
        value = self._values[session_id]
        return value.turns[turn_id], value.links.get(turn_id, ())

    def turns_holding(self, session_id: str, message_id: str) -> Iterable[str]:
        return [turn_id for turn_id, held in self._values[session_id].links.items() if message_id in held]

    def steps(self, session_id: str, turn_id: str, indexes: Collection[int] | None) -> Iterable[Step]:
        held = self._values[session_id].steps.get(turn_id, ())
        return [step for step in held if indexes is None or step.index in indexes]

    def calls(self, session_id: str, ids: Collection[str] | None) -> Iterable[ModelCall]:
        held = self._values[session_id].all_calls() if session_id else chain(*self._calls.values())
        return [call for call in held if ids is None or call.id in ids]

    def moves(self, session_id: str, count: int) -> Iterable[HeadMove]:
        moves = self._values[session_id].moves
        return [moves[seq] for seq in sorted(moves)[-count:]]

    def pruned(self, session_id: str, count: int) -> Iterable[Pruned]:
        found = self._values[session_id].all_pruned()
        newest = max((one.seq for one in found), default=0)
        return [one for one in found if one.seq > newest - count]

    def queued(self, session_id: str, message_id: str) -> Enqueue | None:
        return self._values[session_id].queue.get(message_id)

    def blobs(self, session_id: str, sha256: Collection[str] | None) -> Iterable[BlobName]:
        named = sorted(self._values[session_id].blobs)
        kept = [self._blobs[name] for name in named if sha256 is None or name in sha256]
        return [BlobName(blob.sha256, blob.media_type, len(blob.data)) for blob in kept]

    def names(self, session_id: str) -> SessionNames:
        value = self._values[session_id]
        messages = sorted(value.messages.values(), key=lambda row: (row.created_at, row.id))
        turns = sorted(value.turns.values(), key=lambda turn: (turn.depth, turn.created_at, turn.id))
        waiting = sorted(value.queue.values(), key=lambda row: (not row.interrupt, row.queued_at, row.message_id))
        return SessionNames(
            tuple(row.id for row in messages),
            tuple(turn.id for turn in turns),
            tuple(row.message_id for row in waiting),
        )
