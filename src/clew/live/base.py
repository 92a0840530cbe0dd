"""The live contract: what can be watched while a session runs, and is gone with the process.

Streams: the assistant message being made, replayed from its first part and then followed, by any number of viewers,
each of whom may leave at any time without anybody noticing. Status: idle, busy, retrying or error, readable and
watchable. Events: what happens, to all sessions. Signals: a nudge for whoever runs a session to look into the store.
Nothing here is durable and nothing here decides; whether a chunk was stored before it is shown here is the recorder's
(``save_on``).

Where several processes are one clew, status, events and signals reach all of them, and each hears how far the streams
of the others are. All of that may be lost or late at any time: it says when to look into the store, by number, and
never what is true.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from clew.transcript.chunk import Chunk
from clew.transcript.metadata import PausedBy

__all__ = [
    "Batch",
    "Event",
    "EventType",
    "Listening",
    "Live",
    "LiveStream",
    "RunningCall",
    "Signal",
    "Status",
    "Waiting",
    "Word",
]

EventType = Literal[
    "session_created",
    "session_updated",
    "session_deleted",
    "turn_started",
    "turn_finished",
    "approval_requested",
    "approval_answered",
    "context_compacted",
    "queue_changed",
    "status",
]


class Batch(list[Chunk]):
    """Chunks that were shown together, for everybody who is equally far. ``encoded`` is a front's to keep.

    ``is_last``: nothing comes behind it, where that is known when it is handed out.
    """

    encoded: bytes | None = None
    is_last = False


class Waiting(msgspec.Struct, frozen=True):
    """A call that waits for a human. ``approval_id`` is None for a question."""

    approval_id: str | None
    tool_call_id: str
    tool: str
    since: int


class RunningCall(msgspec.Struct, frozen=True):
    """A tool that has been running for a second or longer."""

    tool_call_id: str
    tool: str
    since: int


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session is doing now. While a human is awaited it is idle, with what is ``waiting``.

    ``problem`` is why it failed, or is being tried again. ``running`` are the calls that take long.

    ``paused`` while messages wait in the queue and nothing will fire them before a person speaks, or answers.
    """

    state: Literal["idle", "busy", "retrying", "error"]
    attempt: int | None = None
    message: str | None = None
    started_at: int | None = None
    retry_at: int | None = None
    waiting: tuple[Waiting, ...] = ()
    problem: dict[str, Any] | None = None
    paused: bool = False
    paused_by: PausedBy | Literal["waiting"] | None = None
    running: tuple[RunningCall, ...] = ()


class Event(msgspec.Struct, frozen=True):
    """Something that happened."""

    type: EventType
    data: Mapping[str, Any]


class Signal(msgspec.Struct, frozen=True):
    """Whoever runs this session is to look at what the store holds for it. What is wanted is durable already."""

    session_id: str
    kind: Literal["stop", "queue"]


class Word(msgspec.Struct, frozen=True):
    """What is heard of a stream that runs elsewhere: the number of the last chunk that may be shown.

    ``epoch`` is that of its run: numbers of two runs on one message have nothing to do with one another.
    """

    message_id: str
    epoch: int
    through: int
    ended: bool = False


class Listening(Protocol):
    """One session as it is heard from elsewhere, for somebody who follows it."""

    @property
    def is_sure(self) -> bool:
        """Whether words are heard as they are said. While they are not, the store must be looked at now and then."""

    async def wait(self, within_s: float) -> Word | None:
        """The newest word since the last time; None when there is none, or something may have been missed.

        The first one is None, as soon as words are heard.
        """

    async def read(self, word: Word, after: int) -> Sequence[tuple[int, Chunk]]:
        """The chunks above ``after`` with their numbers, as far as they are still held elsewhere than in the store.

        Without a gap from ``after`` on, or nothing. What is transient has the number of the chunk before it.
        """

    def close(self) -> None: ...


class LiveStream(Protocol):
    """One run's stream while it lasts."""

    @property
    def message_id(self) -> str: ...

    def show(self, chunks: Sequence[Chunk], through: int | None = None) -> None:
        """Hand what the recorder shows to whoever watches. Never blocks and never raises for a viewer's sake.

        ``through`` is the number of the last of them that has one; without it, nobody elsewhere is given them.
        """

    def end(self, why_not: str | None = None) -> None:
        """No more chunks will come. Saying it twice is fine.

        With ``why_not`` it has not ended but broken off: whoever follows it is let go of, to come back and see.
        """

    def follow(self, *, replay: bool) -> AsyncIterator[Sequence[Chunk]]:
        """The stream in batches, until it ends.

        With ``replay``: the message from its first part as shown so far, deltas joined, then what comes. Without:
        this run's own chunks from its first. A viewer that falls too far behind is let go of (``ViewerLagged``).
        """


class Live(Protocol):
    """What exists only while processes run."""

    @property
    def reaches_others(self) -> bool:
        """Whether runs of other processes can be followed through it."""

    def open_stream(
        self, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]], *, epoch: int = 0, last_n: int = 0
    ) -> LiveStream:
        """Begin a stream; the one before it on this session must have ended. ``parts`` are of earlier runs.

        Its chunks are numbered from ``last_n`` on.
        """

    def find_stream(self, session_id: str) -> LiveStream | None:
        """The stream of a run in this process."""

    def listen(self, session_id: str) -> Listening:
        """Hear of streams of this session that run elsewhere, from now on; where it ``reaches_others``."""

    def status(self, session_id: str) -> Status | None:
        """The status as last set, or heard; None when there was none yet."""

    def set_status(self, session_id: str, status: Status) -> None: ...

    def watch_status(self, session_id: str) -> AsyncIterator[Status | None]:
        """Each change from now on; a slow watcher gets the newest, not every one. None: one may have been missed."""

    def publish(self, event: Event) -> None: ...

    def subscribe(self) -> AsyncIterator[Event]:
        """Events from now on; no replay. A subscriber that falls too far behind is let go of."""

    def signal(self, signal: Signal) -> None:
        """Nudge whoever runs the session, wherever that is. It may be lost."""

    def signals(self) -> AsyncIterator[Signal]:
        """Signals from now on, those given here too. One that was given many times meanwhile is told once."""

    def forget(self, session_id: str) -> None:
        """The session is gone."""

    async def open(self) -> None:
        """Reach for the other processes. One that cannot be reached now is tried again and again."""

    async def close(self) -> None: ...
