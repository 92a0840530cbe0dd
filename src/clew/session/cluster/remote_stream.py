"""Live streams for viewers in this process: those of its own runs, and those of runs in other replicas.

A remote stream is followed once, for all local viewers. It is shown from the store up to the last folded chunk, then
from the journal, then from the live layer, always by chunk number: durable chunks come first, in order, and once. What
the live layer loses or delivers late is read from the store, as of one moment, so that stored parts and journal fit
together; the live layer only makes it faster.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import msgspec

from clew.errors import IllegalChunk, ViewerLagged
from clew.live.base import Batch, Listening, Live, LiveStream, Word
from clew.live.stream import LocalStream
from clew.store.base import Moment, Store
from clew.store.unit import JournalEntry
from clew.transcript import chunk as c
from clew.transcript.fold_part import continues
from clew.transcript.message import MessageRow, shown_message
from clew.transcript.replay import Diverged, catch_up, named_by_part
from clew.transcript.stream_cursor import NumberedChunk
from clew.transcript.turn import Turn, ending_of
from clew.transcript.turn_state import TurnStatus

__all__ = ["LiveStreams", "load_stream_state"]

log = logging.getLogger("clew.live")
_CHECK_S: Final = 1.0
"""Seconds between reads of the store while progress events arrive: one of them may still be lost."""
_POLL_S: Final = 0.2


class LiveStreams:
    """The streams of one engine's viewers."""

    def __init__(self, store: Store, live: Live) -> None:
        self.store = store
        self.live = live
        self.followed: dict[str, _RemoteSubscription] = {}

    async def find(self, session_id: str) -> LiveStream | None:
        """Return the stream of the session's active run, in whichever replica it runs."""
        stream = self.live.find_stream(session_id)
        if stream is None and self.live.reaches_others:
            sight = await load_stream_state(self.store, session_id)
            # A run may have started here while the store was read.
            stream = self.live.find_stream(session_id)
            if stream is None and sight is not None and sight.runs:
                return _RemoteStream(self, session_id, sight)
        return stream

    async def close(self) -> None:
        for followed in tuple(self.followed.values()):
            await followed.stop()


class _RemoteStream:
    """A remote stream, see :class:`clew.live.base.LiveStream`; it can only be followed."""

    def __init__(self, streams: LiveStreams, session_id: str, sight: _StreamState) -> None:
        self._streams = streams
        self._session_id = session_id
        self._sight = sight

    @property
    def message_id(self) -> str:
        return self._sight.message.id if self._sight.message is not None else ""

    @property
    def shown_n(self) -> int:
        followed = self._streams.followed.get(self._session_id)
        return followed.stream.shown_n if followed is not None and followed.stream is not None else 0

    def show(self, chunks: Sequence[NumberedChunk]) -> None:
        raise NotImplementedError("this stream is written by another replica")

    def end(self, why_not: str | None = None) -> None:
        raise NotImplementedError("this stream is written by another replica")

    async def follow(self, *, replay: bool, after: int | None = None) -> AsyncIterator[Batch]:
        if not replay and after is None and self._sight.message is not None and self._sight.message.parts:
            # Only the replica of the run knows where in the message it began.
            raise ViewerLagged("this run began in another replica; join its stream again", message_id=self.message_id)
        followed, sight = self._streams.followed.get(self._session_id), self._sight
        if followed is None or (followed.turn_id, followed.epoch) != (sight.turn.id, sight.epoch) or followed.is_over:
            followed = _RemoteSubscription(self._streams, self._session_id, sight)
            self._streams.followed[self._session_id] = followed
        followed.viewers += 1
        try:
            await followed.begun.wait()
            if followed.stream is not None:
                # Without a message there is nothing to catch up on but how it ended.
                replay = replay and bool(followed.stream.message_id)
                async for batch in followed.stream.follow(replay=replay, after=after):
                    yield batch
            elif followed.failure is not None:
                raise ViewerLagged(f"{followed.failure}; join the stream again", session_id=self._session_id)
        finally:
            followed.viewers -= 1
            if followed.viewers == 0:
                await followed.stop()


class _RemoteSubscription:
    """The subscription to one remote stream, as long as it has local viewers."""

    def __init__(self, streams: LiveStreams, session_id: str, sight: _StreamState) -> None:
        self._streams = streams
        self._session_id = session_id
        self.turn_id, self.epoch = sight.turn.id, sight.epoch
        self.viewers = 0
        self.begun = asyncio.Event()
        self.stream: LocalStream | None = None
        self.failure: str | None = None
        """The reason why it was not followed to its end."""
        self.is_over = False
        self._message_id: str | None = None
        self._metadata: dict[str, Any] | None = None
        self._in_step = False
        # The number of the last chunk shown; None if the chunks shown have no number.
        self._n: int | None = None
        self._has_ended = False
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        self.is_over = True  # a new viewer starts a new subscription
        if self.viewers:
            self.failure = "clew is shutting down"
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _follow(self) -> None:
        listening = self._streams.live.listen(self._session_id)
        try:
            # From here on progress events arrive, so nothing is missed between the first read of the store and them.
            word = await listening.wait(_CHECK_S)
            while not self.is_over:
                if word is None or not (await self._read(listening, word) or await self._read_journal(word)):
                    await self._show_stored()
                if not self.is_over:
                    word = await listening.wait(_CHECK_S if listening.is_sure else _POLL_S)
        except (Diverged, IllegalChunk) as error:
            self.failure = f"the stored text differs from what was shown ({error})"
        except Exception:
            log.exception("could not follow the stream of %s", self._session_id)
            self.failure = "this stream could not be followed any further"
        finally:
            self.is_over = True
            listening.close()
            if self._streams.followed.get(self._session_id) is self:
                del self._streams.followed[self._session_id]
            if self.stream is not None:
                self.stream.end(self.failure)
            self.begun.set()

    async def _read(self, listening: Listening, word: Word) -> bool:
        """Show what the live layer has; return whether nothing is missing."""
        if self._n is None or (word.message_id, word.epoch, word.by_part) != (self._message_id, self.epoch, True):
            return False
        for n, chunk in await listening.read(word, self._n):
            self._show(self._ended_step(chunk), n)
            self._n = n
        self.is_over = word.ended and self._has_ended and self._n >= word.through
        return self._n >= word.through and word.ended == self.is_over

    async def _read_journal(self, word: Word) -> bool:
        """Show what the journal has; return whether nothing is missing. This handles most progress events."""
        if self._n is None or word.ended or (word.message_id, word.epoch) != (self._message_id, self.epoch):
            return False
        try:
            found = (self._session_id, self.turn_id, self.epoch, word.message_id, self._n)
            self._take(await _load_stream_tail(self._streams.store, *found))
        except Exception as error:
            self._log_failed_read(error)
        return self._n >= word.through

    def _log_failed_read(self, error: Exception) -> None:
        """Log a failed read; it is retried until the store is available again. Raise an inconsistency."""
        if isinstance(error, Diverged | IllegalChunk):
            raise error
        log.warning("could not read the stream of %s, retrying: %s", self._session_id, error)

    async def _show_stored(self) -> None:
        """Show what is stored but not shown yet, and end with the run."""
        try:
            sight = await load_stream_state(self._streams.store, self._session_id, self.turn_id, self._message_id)
        except Exception as error:
            self._log_failed_read(error)
            return
        if sight is None:
            self.is_over = True
            return
        if sight.message is not None:
            self._message_id = self._message_id or sight.message.id
            self._catch_up(sight)
        if not sight.runs or sight.epoch != self.epoch:
            self._show(self._ending(sight), None)
            self.is_over = True

    def _catch_up(self, sight: _StreamState) -> None:
        assert sight.message is not None
        stored, shown = (
            [part.data for part in sight.message.parts],
            self.stream.parts if self.stream is not None else [],
        )
        if self._n is None:
            is_behind = True
        elif sight.folded is not None:
            is_behind = sight.folded > self._n
        else:
            # Without a mark, and with chunks shown before they are stored, only the parts can tell.
            is_behind = not continues(shown, stored)
        if is_behind:
            about: list[c.Chunk] = []
            if self._metadata is None:
                about = [c.Start(self._message_id or c.UNSET, sight.metadata)]
            elif self._metadata != sight.metadata:
                about = [c.MessageMetadata(sight.metadata)]
            self._show([*about, *catch_up(shown, stored, in_step=self._in_step)], sight.folded)
            self._n, self._metadata = sight.folded, sight.metadata
        self._take(sight.entries)

    def _take(self, entries: Sequence[JournalEntry]) -> None:
        for n, index, chunk in entries:
            # Terminal chunks are shown once the turn is settled.
            if chunk.__class__ in c.TERMINAL_CHUNKS:
                break
            if self._n is not None and n == self._n + 1:
                self._show(self._ended_step(named_by_part(chunk, index)), n)
                self._n = n

    def _ended_step(self, chunk: c.Chunk) -> list[c.Chunk]:
        """Return a chunk, after the end of the step before it if that came only with what was stored."""
        return [c.FinishStep(), chunk] if isinstance(chunk, c.StartStep) and self._in_step else [chunk]

    def _ending(self, sight: _StreamState) -> list[c.Chunk]:
        """Return how the message ended, as its own terminal chunks would, if those were not received."""
        if self._has_ended:
            return []
        if not sight.is_last or (sight.epoch != self.epoch and sight.runs):
            # The turn continued with another message, or in another run.
            cut = self._message_id in sight.turn.unsent
            last: list[c.Chunk] = [c.Finish(finish_reason="error" if cut else "tool-calls")]
        else:
            cut, last = False, ending_of(sight.turn)
        if self.stream is None:
            return [c.Start(self._message_id or c.UNSET, sight.metadata), *last]
        # A step that was cut off has no end, here as in the original stream.
        ends_step = self._in_step and isinstance(last[0], c.Finish) and not cut
        return [c.FinishStep(), *last] if ends_step else last

    def _show(self, chunks: Sequence[c.Chunk], n: int | None) -> None:
        """Show chunks that only together bring the message to number ``n``."""
        if not chunks:
            return
        if self.stream is None:
            self.stream = LocalStream(self._message_id or "")
        self.stream.show([*((None, chunk) for chunk in chunks[:-1]), (n, chunks[-1])])
        for chunk in chunks:
            if isinstance(chunk, c.StartStep | c.FinishStep):
                self._in_step = isinstance(chunk, c.StartStep)
        self._has_ended = self._has_ended or chunks[-1].__class__ in c.TERMINAL_CHUNKS
        self.begun.set()


_ACTIVE: Final = frozenset[TurnStatus]({"running", "retrying", "compacting"})


class _StreamState(msgspec.Struct, frozen=True):
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
) -> _StreamState | None:
    """Load the stored state of a session's open turn, or of the one given, and its newest message, or the one given.

    None if there is no such turn.
    """

    async def ask(moment: Moment) -> _StreamState | None:
        state = await moment.load_state(session_id)
        through = turn_id or state.open_turn_id
        if through is None or await moment.find_turn(through) is None:
            return None
        entry = (await moment.load_line(session_id, through=through, turns=1, keep_damaged=True)).turns[-1]
        turn, rows = entry.turn, entry.messages
        user_message_id = next((row.id for row in rows if row.role == "user"), None)
        seen = _StreamState(state.epoch, turn, user_message_id)
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


async def _load_stream_tail(
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
