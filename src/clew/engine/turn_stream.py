"""The stream of one turn: of what was just begun, or of a prompt that a client sends a second time.

While such a turn runs that is the live stream, from its message's first part. Afterwards it is made from what is
stored, and ends as the turn ended.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Generic, TypeVar

from clew.errors import MessageNotFound, ModelFailed
from clew.history.lookup import get_place
from clew.live.base import Batch, LiveStream
from clew.runtime.answer_form import OUTPUT_DATA
from clew.runtime.reach import load_newest_turn
from clew.runtime.submission import Submission, TurnOutcome
from clew.store.base import Store
from clew.transcript import chunk as c
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow, shown_message
from clew.transcript.part import data_values
from clew.transcript.replay import replay
from clew.transcript.turn import ending_of, finish_of

__all__ = ["TurnStream", "attached", "find_asked_message", "follow"]

T = TypeVar("T")
FindStream = Callable[[str], Awaitable[LiveStream | None]]


class TurnStream(Generic[T]):
    """A prompt that was taken, and what comes of it: AI SDK chunks as dicts, each already durable, once.

    Leaving the loop early detaches; the run goes on. ``wait`` says how the turn ended, for whoever follows or not.
    ``batches`` are the same chunks as values, for whoever sends them on.
    """

    def __init__(
        self,
        submission: Submission,
        batches: AsyncIterator[Sequence[c.Chunk]],
        find_message: Callable[[str], Awaitable[MessageRow | None]],
        read: Callable[[Any], T] | None = None,
    ) -> None:
        self.message_id = submission.message_id
        self.turn_id = submission.turn_id
        self.batches = batches
        self._submission = submission
        self._find_message = find_message
        self._read = read

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        async for batch in self.batches:
            for chunk in batch:
                yield c.chunk_dict(chunk)

    async def wait(self) -> TurnOutcome:
        """How the turn ended, or that it waits for a human."""
        return await self._submission.wait()

    async def output(self) -> T:
        """The value that was asked for, once the turn has ended. Raises ``ModelFailed`` where it ended without one."""
        outcome = await self.wait()
        row = await self._find_message(outcome.message_id)
        found = data_values([part.data for part in row.parts] if row else (), OUTPUT_DATA)
        if outcome.status != "completed" or not found:
            why = (outcome.error or {}).get("message", f"the turn ended as {outcome.status}, without an output")
            raise ModelFailed(why, turn_id=outcome.turn_id)
        value: T = found[-1] if self._read is None else self._read(found[-1])
        return value


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


async def follow(
    store: Store, find_stream: FindStream, session_id: str, submission: Submission
) -> AsyncIterator[Sequence[c.Chunk]]:
    """The chunks of what was just sent, or of what it was when it was sent before."""
    if submission.turn_id is not None and submission.stream is not None:
        return submission.stream.follow(replay=False)
    holder = await store.find_holder(session_id, submission.message_id)
    if holder is None:
        raise MessageNotFound("this message is in no turn", message_id=submission.message_id)
    live = await find_stream(session_id)
    if live is not None and (await store.load_state(session_id)).open_turn_id == holder.turn.id:
        return live.follow(replay=True)
    # A stream ends after its turn was settled, so what is read from here on is the end of it.
    line = await store.load_line(session_id, through=holder.turn.id, turns=1, keep_damaged=True)
    return _stored(line.turns[-1], submission.message_id)


async def attached(stream: LiveStream, *, replay: bool) -> AsyncIterator[Sequence[c.Chunk]]:
    """What runs, from its message's first part; without ``replay`` only what comes from now on, which may go on with
    parts that began before."""
    async for batch in stream.follow(replay=True):
        # What was shown before comes first, put together anew; what comes live is a batch as it became durable.
        if replay or isinstance(batch, Batch):
            yield batch


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
