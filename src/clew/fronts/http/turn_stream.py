"""The stream of one turn, for a client that sends the same prompt a second time, or wants another answer to it.

While the turn runs that is the live stream, from its message's first part. Afterwards it is made from what is stored,
and ends as the turn ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from clew.engine import Engine
from clew.errors import MessageNotFound
from clew.history.lookup import get_place
from clew.runtime.reach import load_newest_turn
from clew.store.base import Store
from clew.transcript import chunk as c
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow, shown_message
from clew.transcript.replay import replay
from clew.transcript.turn import ending_of, finish_of

__all__ = ["find_asked_message", "stream_turn"]


async def find_asked_message(store: Store, session_id: str, message_id: str | None) -> MessageRow:
    """The user message that an answer is to; of the newest turn when no answer is named.

    What has none, a summary for one, is given back as it is: why it cannot be answered is the engine's to say.
    """
    if message_id is not None:
        pointed = await get_place(store, session_id, message_id)
        held = pointed.held
        if pointed.turn is None or pointed.turn.kind != "normal" or pointed.row.role == "user":
            return pointed.row
    else:
        newest, _ = await load_newest_turn(store, session_id)
        held = newest.messages if newest is not None else ()
    asked = await store.find_message(session_id, held[0]) if held else None
    if asked is None:
        raise MessageNotFound("there is no answer to make again", session_id=session_id)
    return asked


async def stream_turn(engine: Engine, session_id: str, user_message_id: str) -> AsyncIterator[Sequence[c.Chunk]]:
    """The chunks of the turn that this user message began."""
    holder = await engine.store.find_holder(session_id, user_message_id)
    if holder is None:
        raise MessageNotFound("this message is in no turn", message_id=user_message_id)
    turn_id = holder.turn.id
    live = await engine.find_stream(session_id)
    if live is not None and (await engine.store.load_state(session_id)).open_turn_id == turn_id:
        return live.follow(replay=True)
    # A stream ends after its turn was settled, so what is read from here on is the end of it.
    line = await engine.store.load_line(session_id, through=turn_id, turns=1, keep_damaged=True)
    return _stored(line.turns[-1], user_message_id)


async def _stored(held: LineTurn, user_message_id: str) -> AsyncIterator[Sequence[c.Chunk]]:
    turn = held.turn
    added = {"turn_id": turn.id, "user_message_id": user_message_id}
    rows = [row for row in held.messages if row.role == "assistant"]
    if not rows:
        yield [c.Start(message_metadata=added), *ending_of(turn)]
        return
    message = shown_message(rows[-1], turn.id)
    metadata = {**message.metadata, **added}
    value = {"id": message.id, "role": message.role, "metadata": metadata, "parts": message.parts}
    if turn.status in ("failed", "aborted"):
        yield [*replay(value), *ending_of(turn)]
    else:
        yield list(replay(value, finish="tool-calls" if turn.status == "waiting" else finish_of(turn.stopped)))
