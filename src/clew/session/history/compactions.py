"""Reports about a compaction: its summary, its metrics, and the messages it covers. Only reads."""

from __future__ import annotations

from typing import Any

import msgspec

from clew.errors import MessageNotFound, RowUndecodable
from clew.session.history.lookup import holder_of
from clew.store.base import Store
from clew.transcript.message import Message
from clew.transcript.view import Compaction, compaction_data, compactions_of, summarised_messages

__all__ = ["CompactionReport", "load_compaction"]


class CompactionReport(msgspec.Struct, frozen=True):
    """A compaction with the messages its summary covers. ``previous_id`` is the previous marker, if there is one."""

    message_id: str
    turn_id: str
    previous_id: str | None
    data: dict[str, Any]
    messages: tuple[Message, ...]


async def load_compaction(store: Store, session_id: str, message_id: str) -> CompactionReport:
    """Return the report of the compaction that this message marks, on the line or off it."""
    tree = await store.load_tree(session_id)
    # A copied marker belongs to several turns.
    turn = holder_of(tree, message_id)
    if turn is None or turn.kind != "compaction":
        raise MessageNotFound(f"message {message_id} is not a compaction of this session", message_id=message_id)
    line = list((await store.load_line(session_id, through=turn.id, keep_damaged=True)).turns)
    newest: list[Compaction | None] = [*compactions_of(reversed(line)), None, None]
    own, previous = newest[:2]
    if own is None:
        raise RowUndecodable("the marker of this compaction is not readable", message_id=message_id)
    # The turn it was made inside of, and of which it summarised some steps or whole messages.
    split = own.split.message_id if own.split is not None else None
    inside = (id_ for id_, held in tree.links.items() if split in held or own.tail_start_id in held[1:])
    below = next(inside, None)
    if below is not None and all(entry.turn.id != below for entry in line):
        line += (await store.load_line(session_id, through=below, turns=1, keep_damaged=True)).turns
    messages = summarised_messages(line, own, previous)
    data = compaction_data(own.marker) or {}
    return CompactionReport(message_id, turn.id, previous.marker.id if previous else None, data, tuple(messages))
