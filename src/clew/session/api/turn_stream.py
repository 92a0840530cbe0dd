"""The stream of one turn: of a prompt that was just sent, or of one that a client sends again.

While the turn runs this is the live stream, from its message's first part. Afterwards it is made from the store, and
ends as the turn ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

from clew.errors import MessageNotFound, ModelFailed
from clew.live.base import Batch, LiveStream
from clew.session.affected_tree import load_newest_turn
from clew.session.cluster.remote_stream import LiveStreams
from clew.session.history.lookup import locate_message
from clew.session.prompt.submission import Submission, TurnOutcome
from clew.session.turn.structured_output import OUTPUT_DATA
from clew.store.base import Store
from clew.transcript import chunk as c
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow, shown_message
from clew.transcript.part import Part, data_values
from clew.transcript.replay import replay
from clew.transcript.stream_cursor import StreamCursor, reset_chunk
from clew.transcript.turn import Turn, ending_of, finish_of
from clew.transcript.turn_state import OPEN, is_run

__all__ = ["TurnStream", "find_asked_message", "find_batches", "follow", "read_output"]

T = TypeVar("T")
_MAX_LOADS: Final = 40
_LOAD_AGAIN_S: Final = 0.05


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
        position = await locate_message(store, session_id, message_id)
        entry = position.turn_messages
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
    store: Store, streams: LiveStreams, session_id: str, submission: Submission
) -> AsyncIterator[Sequence[c.Chunk]]:
    """Return the chunks of a submission, also of one that was sent before."""
    if submission.turn_id is not None and submission.stream is not None:
        return submission.stream.follow(replay=False)
    return await _of_turn(store, streams, session_id, submission.message_id)


async def find_batches(
    store: Store,
    streams: LiveStreams,
    session_id: str,
    *,
    replay: bool = True,
    message_id: str | None = None,
    after: StreamCursor | None = None,
) -> AsyncIterator[Batch] | None:
    """Return the stream of the active run; or of the turn with ``message_id`` or the message of ``after``, message by
    message, whether it runs or has ended. None if there is nothing to show."""
    if after is not None:
        live = await streams.find(session_id)
        if live is not None and live.message_id == after.message_id:
            return _of_live(store, streams, session_id, live, after)
    if after is not None or (message_id is not None and replay):
        return await _of_turn(store, streams, session_id, message_id, after)
    turn = None if message_id is None else (await locate_message(store, session_id, message_id)).turn
    stream = await streams.find(session_id)
    if turn is not None and (await store.load_state(session_id)).open_turn_id != turn.id:
        return None
    return None if stream is None else _attached(stream, replay=replay)


async def _attached(stream: LiveStream, *, replay: bool) -> AsyncIterator[Batch]:
    """Yield the live stream from its message's first part; without ``replay`` only new chunks, which may continue parts
    that began before."""
    async for batch in stream.follow(replay=True):
        if replay or not batch.is_replay:
            yield batch


async def _of_live(
    store: Store, streams: LiveStreams, session_id: str, live: LiveStream, after: StreamCursor
) -> AsyncIterator[Batch]:
    """Yield the rest of the message that is being written, then the messages that follow it in its turn."""
    async for batch in live.follow(replay=False, after=after.n):
        yield batch
    position = await locate_message(store, session_id, live.message_id)
    if position.turn is not None:
        turn = _Turn(store, streams, session_id, position.turn.id, position.turn_messages[0])
        async for batch in turn.follow(None, shown=live.message_id):
            yield batch


async def _of_turn(
    store: Store,
    streams: LiveStreams,
    session_id: str,
    message_id: str | None,
    after: StreamCursor | None = None,
) -> AsyncIterator[Batch]:
    """Return the messages of a turn; see :class:`_Turn`."""
    named = message_id if message_id is not None else after.message_id if after is not None else ""
    position = await locate_message(store, session_id, named)
    if position.turn is None:
        raise MessageNotFound("this message is not in a turn yet", message_id=position.row.id)
    return _Turn(store, streams, session_id, position.turn.id, position.turn_messages[0]).follow(after)


class _Turn(msgspec.Struct, frozen=True):
    """The messages of one turn, one after the other: stored ones, the one being written, and those that follow it."""

    store: Store
    streams: LiveStreams
    session_id: str
    turn_id: str
    user_message_id: str

    async def follow(self, after: StreamCursor | None, shown: str | None = None) -> AsyncIterator[Batch]:
        """Yield each message from its first part, or what is above ``after``, until the turn has ended or waits.

        ``shown`` is the message after which it begins.
        """
        done = 0
        while True:
            live, entry = await self._load()
            if live is not None and live.message_id == shown:
                return  # it waited for a person, and continues the message in another run
            ids = [row.id for row in entry.messages if row.role == "assistant"]
            if live is not None and live.message_id not in ids:
                ids.append(live.message_id)
            rows = {row.id: row for row in entry.messages}
            done = ids.index(shown) + 1 if shown in ids else done
            if after is not None and after.message_id not in ids:
                yield Batch([reset_chunk(after.message_id)])
                after = None
            if not ids and not done:
                yield Batch([c.Start(message_metadata=self._about), *ending_of(entry.turn)])
            for id_ in ids[done:]:
                number = after.n if after is not None and after.message_id == id_ else None
                if live is not None and id_ == live.message_id:
                    async for batch in live.follow(replay=number is None, after=number):
                        yield batch
                elif number is not None and (ended := self._find_ended(id_, entry.turn)) is not None:
                    async for batch in ended.follow(replay=False, after=number):
                        yield batch
                elif after is None or number is not None:
                    for batch in _stored(rows[id_], entry, self._about, number, is_last=id_ == ids[-1]):
                        yield batch
                after = None if number is not None else after
            if live is None:
                return
            done, shown = len(ids), live.message_id

    def _find_ended(self, message_id: str, turn: Turn) -> LiveStream | None:
        """Return the stream of a run that has just ended, if nothing has changed its message since."""
        ended = self.streams.live.find_ended(self.session_id)
        is_same = ended is not None and (ended.message_id, ended.shown_n) == (message_id, turn.last_n(message_id))
        return ended if is_same else None

    async def _load(self) -> tuple[LiveStream | None, LineTurn]:
        """Return the stream of the turn's run, if it has one, and what the turn holds."""
        loads = 0
        while True:
            live = await self.streams.find(self.session_id)
            if live is not None and (await self.store.load_state(self.session_id)).open_turn_id != self.turn_id:
                live = None
            # A stream ends after its turn was settled, so a read from here on includes its end.
            line = await self.store.load_line(self.session_id, through=self.turn_id, turns=1, keep_damaged=True)
            entry, loads = line.turns[-1], loads + 1
            if live is not None or not is_run(entry.turn.status) or loads == _MAX_LOADS:
                return live, entry
            # A run is about to begin, or its replica is gone.
            await asyncio.sleep(_LOAD_AGAIN_S)

    @property
    def _about(self) -> dict[str, Any]:
        return {"turn_id": self.turn_id, "user_message_id": self.user_message_id}


def _stored(
    row: MessageRow, entry: LineTurn, about: Mapping[str, Any], after: int | None, *, is_last: bool
) -> Iterator[Batch]:
    """Yield a stored message from its first part to its end, or nothing if ``after`` is its end."""
    turn = entry.turn
    count = turn.last_n(row.id)
    if after is not None and after == count:
        return
    if after is not None:
        yield Batch([reset_chunk(row.id)])
    shown = shown_message(row, turn.id)
    value = {**msgspec.structs.asdict(shown), "metadata": {**shown.metadata, **about}}
    if not is_last and row.id in turn.unsent:
        # A step that was cut off has no end.
        chunks = [*replay(value), c.Finish(finish_reason="error")]
    elif not is_last or turn.status in OPEN:
        chunks = [*replay(value, finish="tool-calls")]
    elif turn.status in ("failed", "aborted"):
        chunks = [*replay(value), *ending_of(turn)]
    else:
        chunks = [*replay(value, finish=finish_of(turn.stopped))]
    yield Batch.joined(chunks, row.id, count)
