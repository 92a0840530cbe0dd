"""What the live layers of several processes share: what is to be told, gathered, and what was heard, handed on.

Nothing here waits for another process. What a run says is put into an outbox, which is bounded: the newest word of each
stream, the newest status of each session, events and signals in order. A carrier (:class:`SharedLive` made whole by
``redis`` or ``postgres``) takes all of it at once whenever it is free, so what comes meanwhile travels together. What
could not be carried is dropped: those who need it look into the store.
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

from clew.errors import IllegalChunk
from clew.fit import fit
from clew.live.base import Event, Signal, Status, Word
from clew.live.local import LocalLive
from clew.live.stream import Bell, LocalStream
from clew.transcript.chunk import Chunk, is_transient, parse_encoded, wire

__all__ = ["Frame", "Outbox", "SharedLive", "SharedStream", "encode_frame", "parse_frame"]

log = logging.getLogger("clew.live")

_MOST_EVENTS: Final = 2_000
_MOST_CHUNKS: Final = 4_096
"""Of one stream, not yet carried. Beyond it its viewers elsewhere read the store."""
_MOST_HEARD: Final = 20_000
_SURE_S: Final = 10.0
_UNSURE_S: Final = 1.0
"""How often whoever watches a status looks by themselves."""
_RETRY_S: Final = (0.05, 0.1, 0.2, 0.5, 1.0)
_ONCE_MORE_S: Final = 0.2
Frame = tuple[int, Sequence[Chunk]]
"""Chunks that were shown together, and the number of the last of them."""
_encode: Final = msgspec.json.Encoder().encode
_split: Final = msgspec.json.Decoder(list[tuple[int, msgspec.Raw]]).decode


def encode_frame(through: int, chunks: Sequence[Chunk]) -> bytes:
    """Chunks with their numbers, as JSON; what is transient has the number of the one before it."""
    n = through - sum(not is_transient(chunk) for chunk in chunks)
    numbered: list[tuple[int, Any]] = []
    for chunk in chunks:
        n += not is_transient(chunk)
        numbered.append((n, wire(chunk)))
    return _encode(numbered)


def parse_frame(data: bytes) -> list[tuple[int, Chunk]]:
    """The way back; :class:`IllegalChunk` for what no clew has written."""
    try:
        return [(n, parse_encoded(raw)) for n, raw in _split(data)]
    except msgspec.DecodeError as error:
        raise IllegalChunk(f"this is no frame: {error}") from error


class Outbox(msgspec.Struct):
    """What waits to be carried."""

    words: dict[str, Word] = {}
    frames: dict[SharedStream, list[Frame]] = {}
    statuses: dict[str, Status] = {}
    events: deque[Event] = msgspec.field(default_factory=deque)
    signals: dict[Signal, None] = {}

    def __bool__(self) -> bool:
        return bool(self.words or self.frames or self.statuses or self.events or self.signals)

    def notes(self) -> Iterator[Any]:
        """Everything but words and frames, one by one as JSON."""
        for session_id, status in self.statuses.items():
            yield "status", session_id, status
        for event in self.events:
            yield "event", event.type, event.data
        for signal in self.signals:
            yield "signal", signal.session_id, signal.kind


class SharedStream(LocalStream):
    """A run's stream whose viewers may be elsewhere, too."""

    def __init__(self, live: SharedLive, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message_id, parts, on_end=live.stream_ended)
        self.live = live
        self.session_id = session_id
        self.epoch = 0
        self.through = 0
        self.kept: deque[tuple[str, int]] = deque()
        """What the carrier still keeps of it, and how long each piece is."""
        self.kept_bytes = 0
        self.renew_at = 0.0

    def show(self, chunks: Sequence[Chunk], through: int | None = None) -> None:
        super().show(chunks)
        if through is not None:
            self.through = through
            self.live.tell_frame(self, (through, chunks))

    def word(self) -> Word:
        return Word(self.message_id, self.epoch, self.through, self.ended)


class SharedLive(LocalLive):
    """Streams, status, events and signals of one process among several."""

    reaches_others = True
    carries_chunks: ClassVar[bool] = False
    """Whether chunks travel with their numbers, or the numbers alone."""

    def __init__(self) -> None:
        super().__init__()
        self.origin = secrets.token_hex(6)
        self.is_connected = False
        self._outbox = Outbox()
        self._has_mail = asyncio.Event()
        self._listeners: dict[str, set[SharedListening]] = {}
        self._heard: dict[str, None] = {}
        self._missed_some = False
        self._tasks: list[asyncio.Task[None]] = []

    # What is told

    def open_stream(
        self, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]], *, epoch: int = 0, last_n: int = 0
    ) -> SharedStream:
        self._check_free(session_id)
        stream = SharedStream(self, session_id, message_id, parts)
        stream.epoch, stream.through = epoch, last_n
        self._streams[session_id] = stream
        return stream

    def stream_ended(self, stream: LocalStream) -> None:
        assert isinstance(stream, SharedStream)
        self._drop(stream.session_id, stream)
        self._tell_word(stream)

    def tell_frame(self, stream: SharedStream, frame: Frame) -> None:
        if self.carries_chunks:
            frames = self._outbox.frames.setdefault(stream, [])
            frames.append(frame)
            if len(frames) > 64 and sum(len(chunks) for _, chunks in frames) > _MOST_CHUNKS:
                # A gap that its viewers see by the numbers.
                frames.clear()
        self._tell_word(stream)

    def _tell_word(self, stream: SharedStream) -> None:
        word = stream.word()
        self._outbox.words[stream.session_id] = word
        self.hear_word(stream.session_id, word)
        self._has_mail.set()

    def set_status(self, session_id: str, status: Status) -> None:
        super().set_status(session_id, status)
        self._outbox.statuses[session_id] = status
        self._has_mail.set()

    def publish(self, event: Event) -> None:
        super().publish(event)
        if len(self._outbox.events) < _MOST_EVENTS:
            self._outbox.events.append(event)
        self._has_mail.set()

    def signal(self, signal: Signal) -> None:
        super().signal(signal)
        self._outbox.signals[signal] = None
        self._has_mail.set()

    async def next_mail(self) -> Outbox:
        """Everything that waits, once there is something; what is told in this turn of the loop goes along."""
        while not self._outbox:
            self._has_mail.clear()
            await self._has_mail.wait()
        await asyncio.sleep(0)
        mail, self._outbox = self._outbox, Outbox()
        return mail

    # What is heard

    def listen(self, session_id: str) -> SharedListening:
        listening = SharedListening(self, session_id)
        self._listeners.setdefault(session_id, set()).add(listening)
        return listening

    def stop_listening(self, listening: SharedListening) -> bool:
        """Whether that was the last one on its session."""
        held = self._listeners.get(listening.session_id, set())
        held.discard(listening)
        if not held:
            self._listeners.pop(listening.session_id, None)
        return not held

    def hear_word(self, session_id: str, word: Word) -> None:
        for listening in self._listeners.get(session_id, ()):
            listening.hear(word)

    def hear_note(self, note: Any) -> None:
        """One note of :meth:`Outbox.notes`, from another process. What makes no sense is passed over."""
        with contextlib.suppress(msgspec.ValidationError, ValueError, TypeError):
            kind, first, second = note
            if kind == "word":
                self.hear_word(first, fit(second, Word))
            elif kind == "status" and first not in self._streams:
                self._heard.pop(first, None)
                self._heard[first] = None
                super().set_status(first, fit(second, Status))
                if len(self._heard) > _MOST_HEARD:
                    oldest = next(iter(self._heard))
                    del self._heard[oldest]
                    self._status.pop(oldest, None)
            elif kind == "event":
                super().publish(fit({"type": first, "data": second}, Event))
            elif kind == "signal":
                super().signal(fit({"session_id": first, "kind": second}, Signal))

    def set_connected(self, is_connected: bool) -> None:
        """Words may have been missed: whoever listens looks into the store, and who gets events subscribes again."""
        self.is_connected = is_connected
        for held in self._listeners.values():
            for listening in held:
                listening.miss()
        for session_id in self._heard:
            self._status.pop(session_id, None)
        self._heard.clear()
        if is_connected and self._missed_some:
            self._missed_some = False
            for subscriber in tuple(self._subscribers):
                subscriber.lag()

    async def _changes(self, session_id: str, seen: Status | None) -> AsyncIterator[Status | None]:
        bell = self._status_bells.setdefault(session_id, Bell())
        while True:
            status = self._status.get(session_id)
            if status is not None and status != seen:
                seen = status
                yield status
                continue
            try:
                async with asyncio.timeout(_SURE_S if self.is_connected else _UNSURE_S):
                    await bell.wait()
            except TimeoutError:
                yield None

    async def read_chunks(self, listening: SharedListening, word: Word, after: int) -> Sequence[tuple[int, Chunk]]:
        return ()

    # Its life

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._carry_always()), loop.create_task(self._hear_always())]

    async def close(self) -> None:
        left = set(self._tasks)
        while left:
            # More than once: a library that waits with a limit of its own may take a cancellation for that.
            for task in left:
                task.cancel()
            _, left = await asyncio.wait(left, timeout=_ONCE_MORE_S)

    async def _hear_always(self) -> None:
        await self._again_and_again(self._hear, "hearing from other processes")

    async def _carry_always(self) -> None:
        await self._again_and_again(self._carry, "telling other processes")

    async def _again_and_again(self, work: Any, doing: str) -> None:
        failed = 0
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await work()
            except Exception as error:
                self._missed_some = True
                if asyncio.get_running_loop().time() - began > _RETRY_S[-1] * 2:
                    failed = 0
                if failed == 0:
                    log.warning("%s failed and is tried again: %s", doing, self.plain(error))
            await asyncio.sleep(_RETRY_S[min(failed, len(_RETRY_S) - 1)])
            failed += 1

    def plain(self, error: BaseException) -> str:
        """An error without what must not be shown."""
        return type(error).__name__

    async def _hear(self) -> None:
        """Hear until something fails."""
        raise NotImplementedError

    async def _carry(self) -> None:
        """Carry until something fails."""
        raise NotImplementedError


class SharedListening:
    """See :class:`clew.live.base.Listening`."""

    def __init__(self, live: SharedLive, session_id: str) -> None:
        self._live = live
        self.session_id = session_id
        self.cursor = ""
        """How far the carrier's own copy was read."""
        self._word: Word | None = None
        self._missed = False
        self._news = asyncio.Event()

    @property
    def is_sure(self) -> bool:
        return self._live.is_connected

    def hear(self, word: Word) -> None:
        if self._word is None or word.epoch >= self._word.epoch:
            self._word = word
        self._news.set()

    def miss(self) -> None:
        self._missed = True
        self._news.set()

    async def wait(self, within_s: float) -> Word | None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._news.wait()
        self._news.clear()
        word, self._word = (None if self._missed else self._word), None
        self._missed = False
        return word

    async def read(self, word: Word, after: int) -> Sequence[tuple[int, Chunk]]:
        return await self._live.read_chunks(self, word, after)

    def close(self) -> None:
        self._live.stop_listening(self)
