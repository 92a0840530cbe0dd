"""The stream of one turn: of a prompt that was just sent, or of one that a client sends again.

While the turn runs this is the live stream, from its message's first part. Afterwards it is made from the store, and
ends as the turn ended.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from clew.errors import MessageNotFound, ModelFailed
from clew.live.base import Batch, LiveStream
from clew.session.history.lookup import get_place
from clew.session.prompt.submission import Submission, TurnOutcome
from clew.session.reach import load_newest_turn
from clew.session.turn.structured_output import OUTPUT_DATA
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
    """An accepted prompt and its output: AI SDK chunks as dicts, each already durable, once.

    Leaving the loop early detaches; the run continues. ``wait`` returns how the turn ended, whether or not it is
    followed. ``batches`` are the same chunks as values, for forwarding.
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
        """Wait for the end of the turn, or until it waits for a human."""
        return await self._submission.wait()

    async def output(self) -> T:
        """Return the structured output once the turn has ended. Raise ``ModelFailed`` if it ended without one."""
        outcome = await self.wait()
        row = await self._find_message(outcome.message_id)
        return read_output(outcome, [part.data for part in row.parts] if row else (), self._read)


def read_output(outcome: TurnOutcome, parts: Sequence[Part], read: Callable[[Any], T] | None) -> T:
    """Return the structured output of an ended turn, from the parts of its last message."""
    found = data_values(parts, OUTPUT_DATA)
    if outcome.status != "completed" or not found:
        why = (outcome.error or {}).get("message", f"the turn ended as {outcome.status}, without an output")
        raise ModelFailed(why, turn_id=outcome.turn_id)
    value: T = found[-1] if read is None else read(found[-1])
    return value


async def find_asked_message(store: Store, session_id: str, message_id: str | None) -> MessageRow:
    """Return the user message of an answer, by default of the newest turn's.

    A message without one, such as a summary, is returned itself: the engine reports why it cannot be answered.
    """
    if message_id is not None:
        position = await get_place(store, session_id, message_id)
        entry = position.held
        if position.turn is None or position.turn.kind != "normal" or position.row.role == "user":
            return position.row
    else:
        newest, _ = await load_newest_turn(store, session_id)
        entry = newest.messages if newest is not None else ()
    user_message = await store.find_message(session_id, entry[0]) if entry else None
    if user_message is None:
        raise MessageNotFound("there is no answer to repeat", session_id=session_id)
    return user_message


async def follow(
    store: Store, find_stream: FindStream, session_id: str, submission: Submission
) -> AsyncIterator[Sequence[c.Chunk]]:
    """Return the chunks of a submission, also of one that was sent before."""
    if submission.turn_id is not None and submission.stream is not None:
        return submission.stream.follow(replay=False)
    return (await _of_turn(store, find_stream, session_id, submission.message_id))[-1]


async def find_batches(
    store: Store, find_stream: FindStream, session_id: str, *, replay: bool = True, message_id: str | None = None
) -> AsyncIterator[Sequence[c.Chunk]] | None:
    """Return the stream of the active run; or of the turn with ``message_id``, message by message, whether it runs or
    has ended. None if there is nothing to show."""
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
    """Return the messages of the turn that contains one, each from its first part; the last may still be streaming."""
    position = await get_place(store, session_id, message_id)
    if position.turn is None:
        raise MessageNotFound("this message is not in a turn yet", message_id=position.row.id)
    live = await find_stream(session_id)
    runs = live is not None and (await store.load_state(session_id)).open_turn_id == position.turn.id
    # A stream ends after its turn was settled, so a read from here on includes its end.
    entry = (await store.load_line(session_id, through=position.turn.id, turns=1, keep_damaged=True)).turns[-1]
    rows = [row for row in entry.messages if row.role == "assistant"]
    if live is not None and runs:
        earlier = list(itertools.takewhile(lambda row: row.id != live.message_id, rows))
        last = live.follow(replay=True)
    else:
        earlier, last = rows[:-1], _stored(entry, position.held[0])
    return [*(_earlier(row, entry, position.held[0]) for row in earlier), last]


async def _joined(messages: Sequence[AsyncIterator[Sequence[c.Chunk]]]) -> AsyncIterator[Sequence[c.Chunk]]:
    for message in messages:
        async for batch in message:
            yield batch


async def _attached(stream: LiveStream, *, replay: bool) -> AsyncIterator[Sequence[c.Chunk]]:
    """Yield the live stream from its message's first part; without ``replay`` only new chunks, which may continue parts
    that began before."""
    async for batch in stream.follow(replay=True):
        # The first batches rebuild what was shown before; live ones are of type Batch.
        if replay or isinstance(batch, Batch):
            yield batch


async def _stored(entry: LineTurn, user_message_id: str) -> AsyncIterator[Sequence[c.Chunk]]:
    turn = entry.turn
    added = {"turn_id": turn.id, "user_message_id": user_message_id}
    rows = [row for row in entry.messages if row.role == "assistant"]
    if not rows:
        yield [c.Start(message_metadata=added), *ending_of(turn)]
        return
    value = _message(rows[-1], turn.id, added)
    if turn.status in ("failed", "aborted"):
        yield [*replay(value), *ending_of(turn)]
    else:
        yield list(replay(value, finish="tool-calls" if turn.status in OPEN else finish_of(turn.stopped)))


async def _earlier(row: MessageRow, entry: LineTurn, user_message_id: str) -> AsyncIterator[Sequence[c.Chunk]]:
    """Yield a message after which its turn continued, ended as it was: a step that was cut off has no end."""
    value = _message(row, entry.turn.id, {"turn_id": entry.turn.id, "user_message_id": user_message_id})
    if row.id in entry.turn.unsent:
        yield [*replay(value), c.Finish(finish_reason="error")]
    else:
        yield list(replay(value, finish="tool-calls"))


def _message(row: MessageRow, turn_id: str, added: Mapping[str, Any]) -> dict[str, Any]:
    message = shown_message(row, turn_id)
    return {**msgspec.structs.asdict(message), "metadata": {**message.metadata, **added}}
