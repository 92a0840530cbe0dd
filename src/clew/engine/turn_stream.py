"""The stream of one turn: of what was just begun, or of a prompt that a client sends a second time.

While such a turn runs that is the live stream, from its message's first part. Afterwards it is made from what is
stored, and ends as the turn ended.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

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
from clew.transcript.part import Part, data_values
from clew.transcript.replay import replay
from clew.transcript.turn import ending_of, finish_of
from clew.transcript.turn_state import OPEN

__all__ = ["TurnStream", "find_asked_message", "find_batches", "follow", "read_output"]

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
        return read_output(outcome, [part.data for part in row.parts] if row else (), self._read)


def read_output(outcome: TurnOutcome, parts: Sequence[Part], read: Callable[[Any], T] | None) -> T:
    """The value that a turn which has ended was asked for, in the parts of its last message."""
    found = data_values(parts, OUTPUT_DATA)
    if outcome.status != "completed" or not found:
        why = (outcome.error or {}).get("message", f"the turn ended as {outcome.status}, without an output")
        raise ModelFailed(why, turn_id=outcome.turn_id)
    value: T = found[-1] if read is None else read(found[-1])
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
    return (await _of_turn(store, find_stream, session_id, submission.message_id))[-1]


async def find_batches(
    store: Store, find_stream: FindStream, session_id: str, *, replay: bool = True, message_id: str | None = None
) -> AsyncIterator[Sequence[c.Chunk]] | None:
    """What runs on the session; or the turn that holds ``message_id``, message by message, whether it runs or is over.
    None where there is nothing to show."""
    if message_id is not None and replay:
        return _joined(await _of_turn(store, find_stream, session_id, message_id))
    turn = None if message_id is None else (await get_place(store, session_id, message_id)).turn
    stream = await find_stream(session_id)
    if turn is not None and (await store.load_state(session_id)).open_turn_id != turn.id:
        return None
    return None if stream is None else _attached(stream, replay=replay)


async def _of_turn(
    store: Store, find_stream: FindStream, session_id: str, message_id: str
) -> list[AsyncIterator[Sequence[c.Chunk]]]:
    """The messages of the turn that holds one, each from its first part; the last may be coming still."""
    place = await get_place(store, session_id, message_id)
    if place.turn is None:
        raise MessageNotFound("this message is in no turn yet", message_id=place.row.id)
    live = await find_stream(session_id)
    runs = live is not None and (await store.load_state(session_id)).open_turn_id == place.turn.id
    # A stream ends after its turn was settled, so what is read from here on is the end of it.
    held = (await store.load_line(session_id, through=place.turn.id, turns=1, keep_damaged=True)).turns[-1]
    rows = [row for row in held.messages if row.role == "assistant"]
    if live is not None and runs:
        earlier = list(itertools.takewhile(lambda row: row.id != live.message_id, rows))
        last = live.follow(replay=True)
    else:
        earlier, last = rows[:-1], _stored(held, place.held[0])
    return [*(_earlier(row, held, place.held[0]) for row in earlier), last]


async def _joined(messages: Sequence[AsyncIterator[Sequence[c.Chunk]]]) -> AsyncIterator[Sequence[c.Chunk]]:
    for message in messages:
        async for batch in message:
            yield batch


async def _attached(stream: LiveStream, *, replay: bool) -> AsyncIterator[Sequence[c.Chunk]]:
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
    value = _message(rows[-1], turn.id, added)
    if turn.status in ("failed", "aborted"):
        yield [*replay(value), *ending_of(turn)]
    else:
        yield list(replay(value, finish="tool-calls" if turn.status in OPEN else finish_of(turn.stopped)))


async def _earlier(row: MessageRow, held: LineTurn, user_message_id: str) -> AsyncIterator[Sequence[c.Chunk]]:
    """A message that its turn went on from, ended as it was: a step that was cut did not end."""
    value = _message(row, held.turn.id, {"turn_id": held.turn.id, "user_message_id": user_message_id})
    if row.id in held.turn.unsent:
        yield [*replay(value), c.Finish(finish_reason="error")]
    else:
        yield list(replay(value, finish="tool-calls"))


def _message(row: MessageRow, turn_id: str, added: Mapping[str, Any]) -> dict[str, Any]:
    message = shown_message(row, turn_id)
    return {**msgspec.structs.asdict(message), "metadata": {**message.metadata, **added}}
