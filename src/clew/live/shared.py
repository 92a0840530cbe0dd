"""The shared part of the live layers of several processes: outgoing updates are collected, incoming ones distributed.

Nothing here waits for another process. Updates go into a bounded outbox: the newest progress of each stream, the newest
status of each session, events and signals in order. The transport (a subclass in ``redis`` or ``postgres``) sends the
whole outbox whenever it is free, so updates made meanwhile travel together. Updates that cannot be sent are dropped:
receivers read the store instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec

from clew.convert import convert
from clew.errors import IllegalChunk
from clew.live.base import Event, Signal, Status, Word
from clew.live.local import LocalLive
from clew.live.stream import Bell, LocalStream
from clew.transcript.chunk import Chunk, is_transient, parse_encoded, wire
from clew.transcript.stream_cursor import NumberedChunk

__all__ = ["Frame", "Outbox", "SharedLive", "SharedStream", "encode_frame", "parse_frame"]

log = logging.getLogger("clew.live")

_MAX_EVENTS: Final = 2_000
_MAX_CHUNKS: Final = 4_096
"""Unsent chunks of one stream. Beyond it, viewers in other processes read the store."""
_MAX_REMOTE_STATUSES: Final = 20_000
_CONNECTED_POLL_S: Final = 10.0
_DISCONNECTED_POLL_S: Final = 1.0
"""Interval at which a status watcher polls the store."""
_RETRY_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_CANCEL_RETRY_S: Final = 0.2
Frame = tuple[int, Sequence[Chunk]]
"""Chunks that were shown together, and the number of the last one."""
_encode: Final = msgspec.json.Encoder().encode
_decode_numbered: Final = msgspec.json.Decoder(list[tuple[int, msgspec.Raw]]).decode


def encode_frame(through: int, chunks: Sequence[Chunk]) -> bytes:
    """Encode chunks with their numbers as JSON; a transient chunk has the number of the chunk before it."""
    n = through - sum(not is_transient(chunk) for chunk in chunks)
    numbered: list[tuple[int, Any]] = []
    for chunk in chunks:
        n += not is_transient(chunk)
        numbered.append((n, wire(chunk)))
    return _encode(numbered)


def parse_frame(data: bytes) -> list[tuple[int, Chunk]]:
    """Decode a frame; raise :class:`IllegalChunk` for data that clew has not written."""
    try:
        return [(n, parse_encoded(raw)) for n, raw in _decode_numbered(data)]
    except msgspec.DecodeError as error:
        raise IllegalChunk(f"not a frame: {error}") from error


class Outbox(msgspec.Struct):
    """Updates to be sent to other processes."""

    progress: dict[str, Word] = {}
    frames: dict[SharedStream, list[Frame]] = {}
    statuses: dict[str, Status] = {}
    events: deque[Event] = msgspec.field(default_factory=deque)
    signals: dict[Signal, None] = {}

    def __bool__(self) -> bool:
        return bool(self.progress or self.frames or self.statuses or self.events or self.signals)

    def notes(self) -> Iterator[Any]:
        """Yield everything but progress and frames, one by one as JSON."""
        for session_id, status in self.statuses.items():
            yield "status", session_id, status
        for event in self.events:
            yield "event", event.type, event.data
        for signal in self.signals:
            yield "signal", signal.session_id, signal.kind


class SharedStream(LocalStream):
    """A run's stream that other processes can follow too."""

    def __init__(
        self,
        live: SharedLive,
        session_id: str,
        message_id: str,
        parts: Sequence[Mapping[str, Any]],
        *,
        epoch: int,
        last_n: int,
    ) -> None:
        super().__init__(message_id, parts, on_end=live.stream_ended, last_n=last_n)
        self.live = live
        self.session_id = session_id
        self.epoch = epoch
        self.stored_frames: deque[tuple[str, int]] = deque()
        """The id and the size of each entry on the server."""
        self.stored_bytes = 0
        self.renew_at = 0.0

    def show(self, chunks: Sequence[NumberedChunk]) -> None:
        super().show(chunks)
        through = chunks[-1][0]
        if through is not None:
            self.live.publish_frame(self, (through, [chunk for _, chunk in chunks]))

    def progress(self) -> Word:
        return Word(self.message_id, self.epoch, self.shown_n, self.ended, by_part=True)


class SharedLive(LocalLive):
    """The live layer of one process among several."""

    reaches_others = True
    carries_chunks: ClassVar[bool] = False
    """True if chunks are sent with their numbers, False if only the numbers are."""

    def __init__(self) -> None:
        super().__init__()
        self.origin = secrets.token_hex(6)
        self.is_connected = False
        self._outbox = Outbox()
        self._has_updates = asyncio.Event()
        self._listeners: dict[str, set[SharedListening]] = {}
        self._remote_statuses: dict[str, None] = {}
        self._missed_updates = False
        self._tasks: list[asyncio.Task[None]] = []

    # Outgoing

    def open_stream(
        self, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]], *, epoch: int = 0, last_n: int = 0
    ) -> SharedStream:
        self._check_free(session_id)
        stream = SharedStream(self, session_id, message_id, parts, epoch=epoch, last_n=last_n)
        self._streams[session_id] = stream
        return stream

    def stream_ended(self, stream: LocalStream) -> None:
        assert isinstance(stream, SharedStream)
        self._drop(stream.session_id, stream)
        self._publish_progress(stream)

    def publish_frame(self, stream: SharedStream, frame: Frame) -> None:
        if self.carries_chunks:
            frames = self._outbox.frames.setdefault(stream, [])
            frames.append(frame)
            if len(frames) > 64 and sum(len(chunks) for _, chunks in frames) > _MAX_CHUNKS:
                # Viewers notice the gap by the numbers.
                frames.clear()
        self._publish_progress(stream)

    def _publish_progress(self, stream: SharedStream) -> None:
        progress = stream.progress()
        self._outbox.progress[stream.session_id] = progress
        self.on_progress(stream.session_id, progress)
        self._has_updates.set()

    def set_status(self, session_id: str, status: Status) -> None:
        super().set_status(session_id, status)
        self._outbox.statuses[session_id] = status
        self._has_updates.set()

    def publish(self, event: Event) -> None:
        super().publish(event)
        if len(self._outbox.events) < _MAX_EVENTS:
            self._outbox.events.append(event)
        self._has_updates.set()

    def signal(self, signal: Signal) -> None:
        super().signal(signal)
        self._outbox.signals[signal] = None
        self._has_updates.set()

    async def next_outbox(self) -> Outbox:
        """Wait for updates and return all of them, including those made in this iteration of the event loop."""
        while not self._outbox:
            self._has_updates.clear()
            await self._has_updates.wait()
        await asyncio.sleep(0)
        outbox, self._outbox = self._outbox, Outbox()
        return outbox

    # Incoming

    def listen(self, session_id: str) -> SharedListening:
        listening = SharedListening(self, session_id)
        self._listeners.setdefault(session_id, set()).add(listening)
        return listening

    def remove_listener(self, listening: SharedListening) -> bool:
        """Remove a listener; return whether it was the last one on its session."""
        listeners = self._listeners.get(listening.session_id, set())
        listeners.discard(listening)
        if not listeners:
            self._listeners.pop(listening.session_id, None)
        return not listeners

    def on_progress(self, session_id: str, progress: Word) -> None:
        for listening in self._listeners.get(session_id, ()):
            listening.on_progress(progress)

    def on_note(self, note: Any) -> None:
        """Apply one note of :meth:`Outbox.notes` from another process. Invalid notes are ignored."""
        with contextlib.suppress(msgspec.ValidationError, ValueError, TypeError):
            kind, first, second = note
            if kind == "word":
                self.on_progress(first, convert(second, Word))
            elif kind == "status" and first not in self._streams:
                self._remote_statuses.pop(first, None)
                self._remote_statuses[first] = None
                super().set_status(first, convert(second, Status))
                if len(self._remote_statuses) > _MAX_REMOTE_STATUSES:
                    oldest = next(iter(self._remote_statuses))
                    del self._remote_statuses[oldest]
                    self._status.pop(oldest, None)
            elif kind == "event":
                super().publish(convert({"type": first, "data": second}, Event))
            elif kind == "signal":
                super().signal(convert({"session_id": first, "kind": second}, Signal))

    def set_connected(self, is_connected: bool) -> None:
        """Handle a change of the connection: updates may have been missed, so listeners read the store."""
        self.is_connected = is_connected
        for listeners in self._listeners.values():
            for listening in listeners:
                listening.mark_missed()
        for session_id in self._remote_statuses:
            self._status.pop(session_id, None)
        self._remote_statuses.clear()
        if is_connected and self._missed_updates:
            self._missed_updates = False
            for subscriber in tuple(self._subscribers):
                subscriber.mark_lagged()

    async def _changes(self, session_id: str, last_seen: Status | None) -> AsyncIterator[Status | None]:
        bell = self._status_bells.setdefault(session_id, Bell())
        while True:
            status = self._status.get(session_id)
            if status is not None and status != last_seen:
                last_seen = status
                yield status
                continue
            try:
                async with asyncio.timeout(_CONNECTED_POLL_S if self.is_connected else _DISCONNECTED_POLL_S):
                    await bell.wait()
            except TimeoutError:
                yield None

    async def read_chunks(self, listening: SharedListening, progress: Word, after: int) -> Sequence[tuple[int, Chunk]]:
        return ()

    # Lifecycle

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._publish_loop()), loop.create_task(self._listen_loop())]

    async def close(self) -> None:
        remaining = set(self._tasks)
        while remaining:
            # Cancel repeatedly: a library with a timeout of its own may swallow a cancellation.
            for task in remaining:
                task.cancel()
            _, remaining = await asyncio.wait(remaining, timeout=_CANCEL_RETRY_S)

    async def _listen_loop(self) -> None:
        await self._retry_forever(self._listen, "listening to other processes")

    async def _publish_loop(self) -> None:
        await self._retry_forever(self._publish, "publishing to other processes")

    async def _retry_forever(self, work: Any, doing: str) -> None:
        failed = 0
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await work()
            except Exception as error:
                self._missed_updates = True
                if asyncio.get_running_loop().time() - started > _RETRY_S[-1] * 2:
                    failed = 0
                if failed == 0:
                    log.warning("%s failed, retrying: %s", doing, self.plain(error))
            await asyncio.sleep(_RETRY_S[min(failed, len(_RETRY_S) - 1)])
            failed += 1

    def plain(self, error: BaseException) -> str:
        """Describe an error without secrets."""
        return type(error).__name__

    async def _listen(self) -> None:
        """Listen until something fails."""
        raise NotImplementedError

    async def _publish(self) -> None:
        """Publish until something fails."""
        raise NotImplementedError


class SharedListening:
    """A subscription; see :class:`clew.live.base.Listening`."""

    def __init__(self, live: SharedLive, session_id: str) -> None:
        self._live = live
        self.session_id = session_id
        self.cursor = ""
        """Position in the server's copy of the stream."""
        self._progress: Word | None = None
        self._missed = False
        self._changed = asyncio.Event()

    @property
    def is_sure(self) -> bool:
        return self._live.is_connected

    def on_progress(self, progress: Word) -> None:
        if self._progress is None or progress.epoch >= self._progress.epoch:
            self._progress = progress
        self._changed.set()

    def mark_missed(self) -> None:
        self._missed = True
        self._changed.set()

    async def wait(self, within_s: float) -> Word | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        self._changed.clear()
        progress, self._progress = (None if self._missed else self._progress), None
        self._missed = False
        return progress

    async def read(self, progress: Word, after: int) -> Sequence[tuple[int, Chunk]]:
        return await self._live.read_chunks(self, progress, after)

    def close(self) -> None:
        self._live.remove_listener(self)
