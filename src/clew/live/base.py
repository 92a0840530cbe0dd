"""The live contract: what can be watched while a session runs, and is gone with the process.

Streams: the assistant message being made, replayed from its first part and then followed, by any number of viewers,
each of whom may leave at any time without anybody noticing. Status: idle, busy, retrying or error, readable and
watchable. Events: what happens on this host, to all sessions. Nothing here is durable and nothing here decides; whether
a chunk was stored before it is shown here is the recorder's (``save_on``).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from clew.transcript.chunk import Chunk
from clew.transcript.metadata import PausedBy

__all__ = ["Batch", "Event", "EventType", "Live", "LiveStream", "Status", "Waiting"]

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
    """Chunks that were shown together, for everybody who is equally far. ``encoded`` is a front's to keep."""

    encoded: bytes | None = None


class Waiting(msgspec.Struct, frozen=True):
    """A call that waits for a human. ``approval_id`` is None for a question."""

    approval_id: str | None
    tool_call_id: str
    tool: str
    since: int


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a session is doing now. While a human is awaited it is idle, with what is ``waiting``.

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


class Event(msgspec.Struct, frozen=True):
    """Something that happened on this host."""

    type: EventType
    data: Mapping[str, Any]


class LiveStream(Protocol):
    """One run's stream while it lasts."""

    @property
    def message_id(self) -> str: ...

    def show(self, chunks: Sequence[Chunk]) -> None:
        """Hand what the recorder shows to whoever watches. Never blocks and never raises for a viewer's sake."""

    def end(self) -> None:
        """No more chunks will come. Saying it twice is fine."""

    def follow(self, *, replay: bool) -> AsyncIterator[Sequence[Chunk]]:
        """The stream in batches, until it ends.

        With ``replay``: the message from its first part as shown so far, deltas joined, then what comes. Without:
        this run's own chunks from its first. A viewer that falls too far behind is let go of (``ViewerLagged``).
        """


class Live(Protocol):
    """What exists only while processes run."""

    def open_stream(self, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]]) -> LiveStream:
        """Begin a stream; the one before it on this session must have ended. ``parts`` are of earlier runs."""

    def find_stream(self, session_id: str) -> LiveStream | None: ...

    def status(self, session_id: str) -> Status | None:
        """The status as last set; None when nothing ran here yet."""

    def set_status(self, session_id: str, status: Status) -> None: ...

    def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        """Each change from now on; a slow watcher gets the newest, not every one."""

    def publish(self, event: Event) -> None: ...

    def subscribe(self) -> AsyncIterator[Event]:
        """Events from now on; no replay. A subscriber that falls too far behind is let go of."""

    def forget(self, session_id: str) -> None:
        """The session is gone."""
