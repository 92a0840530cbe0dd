"""The contract of the live layer: state of running sessions that ends with the process.

Streams: the assistant message being written, sent from its first part and then followed, by any number of viewers, each
of which may disconnect at any time without affecting the run. Status: idle, busy, retrying or error, readable and
watchable. Events: notifications about all sessions. Signals: a hint to the process that runs a session to read the
store. Nothing here is durable and nothing is decided here; the recorder decides whether a chunk is stored before it is
shown (``save_on``).

Where several processes serve one store, status, events and signals reach all of them, and each learns how far the
streams of the others have got. Any of that may be lost or late: it says when to read the store and up to which number,
and is never the source of truth.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from clew.errors import InvalidInput
from clew.transcript.chunk import Chunk
from clew.transcript.metadata import PausedBy
from clew.transcript.stream_cursor import NumberedChunk

__all__ = [
    "Batch",
    "Event",
    "EventType",
    "Listening",
    "Live",
    "LivePlace",
    "LiveStream",
    "RunningCall",
    "Signal",
    "Status",
    "Waiting",
    "Word",
    "parse_live",
    "shown_address",
]


_EXPECTED: Final = "local, postgres, or the address of a Valkey or Redis server: redis://HOST:6379/0"
_SERVERS: Final = ("redis", "rediss", "unix", "valkey", "valkeys")


class LivePlace(msgspec.Struct, frozen=True):
    """``local``: this process only. ``postgres``: the store's own database. ``redis``: the server at ``url``."""

    kind: Literal["local", "postgres", "redis"]
    url: str = ""


def parse_live(named: str | None) -> LivePlace | None:
    """Return the configured live layer; None if none is configured."""
    if not named:
        return None
    if named in ("local", "postgres"):
        return LivePlace("local" if named == "local" else "postgres")
    scheme, colon, rest = named.partition("://")
    if not colon or scheme not in _SERVERS or not rest or any(ord(sign) <= 32 for sign in named):
        # The text may still contain a password: do not repeat it.
        raise InvalidInput(f"the live layer is {_EXPECTED}")
    return LivePlace("redis", f"{scheme.replace('valkey', 'redis')}://{rest}")


def shown_address(url: str) -> str:
    """Return the address without credentials; if they cannot be located reliably, only its scheme."""
    scheme, _, rest = url.partition("://")
    address = rest.split("?", 1)[0]
    is_plain = "@" not in address.partition("/")[2] and address.count("@") <= 1
    return f"{scheme}://{address.rpartition('@')[2]}" if is_plain else f"{scheme}://…"


EventType = Literal[
    # A session was created.
    "session_created",
    # A session was changed.
    "session_updated",
    # A session was deleted. With ``owner``, if it had one.
    "session_deleted",
    # A run began or resumed. With ``turn_id``, ``message_id`` and ``user_message_id``.
    "turn_started",
    # A run ended. With ``turn_id``, ``error`` and ``reason``: ``finish``, ``abort``, ``error``, ``waiting`` or
    # ``refused``.
    "turn_finished",
    # A call waits for a person. With ``approval_id``, ``tool_call_id``, ``tool`` and ``since``.
    "approval_requested",
    # A person answered. With ``approval_id`` and ``tool_call_id``.
    "approval_answered",
    # The context was compacted or pruned. With ``auto`` and the fields of a ``Compacted``.
    "context_compacted",
    # A message was queued, changed, sent or removed, or the queue was paused or resumed.
    "queue_changed",
    # A snapshot of the workspace failed, or was late. With ``snapshot_id``, ``point``, ``turn_id``, ``state`` and
    # ``problem``.
    "snapshot_failed",
    # The status of a session changed. With ``status``.
    "status",
]


class Batch(list[Chunk]):
    """Chunks shown together, shared by all viewers at the same position. ``encoded`` caches a front's encoding.

    ``numbers`` has the number of each chunk of the message ``message_id`` after which a client may continue, None for
    the others. ``is_last``: no batch follows, as far as that is known when this one is handed out.
    """

    encoded: bytes | None = None
    is_last = False
    is_replay = False
    """Whether it makes up what was shown before."""

    def __init__(
        self, chunks: Iterable[Chunk], message_id: str | None = None, numbers: Sequence[int | None] = ()
    ) -> None:
        super().__init__(chunks)
        self.message_id = message_id
        self.numbers = numbers

    @classmethod
    def joined(cls, chunks: Iterable[Chunk], message_id: str, n: int | None) -> Batch:
        """Return a message from its first part, as chunks that only together end at a position of it."""
        batch = cls(chunks, message_id)
        batch.numbers, batch.is_replay = [None] * (len(batch) - 1) + [n], True
        return batch

    def cursors(self) -> Iterator[str | None]:
        """Yield for each chunk the position after it, as a client names it."""
        for n in self.numbers or [None] * len(self):
            yield None if n is None else f"{self.message_id}:{n}"


class Waiting(msgspec.Struct, frozen=True):
    """A call that waits for a person. ``approval_id`` is None for a question."""

    approval_id: str | None
    tool_call_id: str
    tool: str
    since: int


class RunningCall(msgspec.Struct, frozen=True):
    """A tool call that has been running for a second or longer."""

    tool_call_id: str
    tool: str
    since: int


class Status(msgspec.Struct, frozen=True, omit_defaults=True):
    """The current activity of a session. It is idle while waiting for a person; ``waiting`` lists the pending calls.

    ``problem`` is the reason of a failure or a retry. ``running`` lists long-running calls.

    ``paused``: messages are queued, and none is sent before a person prompts, or answers.
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
    """A notification about the host or one of its sessions."""

    type: EventType
    data: Mapping[str, Any]


class Signal(msgspec.Struct, frozen=True):
    """A hint to the process that runs this session: read its rows in the store. The request is already durable."""

    session_id: str
    kind: Literal["stop", "queue"]


class Word(msgspec.Struct, frozen=True):
    """Progress of a stream in another process: the number of the last chunk that may be shown.

    ``epoch`` identifies the run. ``by_part``: its chunks have ids by part, as every version of clew since has them.
    """

    message_id: str
    epoch: int
    through: int
    ended: bool = False
    by_part: bool = False


class Listening(Protocol):
    """A subscription to the progress of one session in other processes."""

    @property
    def is_sure(self) -> bool:
        """Return whether progress is delivered as it happens. While it is not, poll the store."""

    async def wait(self, within_s: float) -> Word | None:
        """Return the newest progress since the last call; None if there was none, or if some may have been missed.

        The first call returns None, as soon as the subscription is active.
        """

    async def read(self, progress: Word, after: int) -> Sequence[tuple[int, Chunk]]:
        """Return the chunks above ``after`` with their numbers, as far as they are available outside the store.

        The result continues from ``after`` without a gap, or is empty. A transient chunk has the number of the chunk
        before it.
        """

    def close(self) -> None: ...


class LiveStream(Protocol):
    """The stream of one run, while it lasts."""

    @property
    def message_id(self) -> str: ...

    def show(self, chunks: Sequence[NumberedChunk]) -> None:
        """Hand chunks to all viewers. Never blocks, and never raises because of a viewer.

        Other processes get those that end in a number.
        """

    def end(self, why_not: str | None = None) -> None:
        """End the stream: no more chunks will come. Idempotent.

        With ``why_not`` the stream was cut, not finished: viewers are disconnected and have to join again.
        """

    @property
    def shown_n(self) -> int:
        """Return the number of the last chunk shown."""

    def follow(self, *, replay: bool, after: int | None = None) -> AsyncIterator[Batch]:
        """Yield the stream in batches, until it ends.

        With ``replay``: the message from its first part as shown so far, deltas joined, then new chunks. Without: only
        this run's chunks, from the first. ``after``: the chunks above this number or, if they are unknown, a reset and
        the whole message. A viewer that falls too far behind is disconnected (``ViewerLagged``).
        """


class Live(Protocol):
    """State that exists only while processes run."""

    @property
    def reaches_others(self) -> bool:
        """Return whether runs of other processes can be followed."""

    def open_stream(
        self, session_id: str, message_id: str, parts: Sequence[Mapping[str, Any]], *, epoch: int = 0, last_n: int = 0
    ) -> LiveStream:
        """Begin a stream; the previous one of this session must have ended. ``parts`` come from earlier runs.

        Its chunks are numbered from ``last_n`` on.
        """

    def find_stream(self, session_id: str) -> LiveStream | None:
        """Return the stream of a run in this process."""

    def find_ended(self, session_id: str) -> LiveStream | None:
        """Return the stream of the last run in this process, if it has just ended; it is soon forgotten."""

    def listen(self, session_id: str) -> Listening:
        """Subscribe to streams of this session in other processes, from now on. Requires ``reaches_others``."""

    def status(self, session_id: str) -> Status | None:
        """Return the status last set here or received; None if there was none yet."""

    def set_status(self, session_id: str, status: Status) -> None: ...

    def watch_status(self, session_id: str) -> AsyncIterator[Status | None]:
        """Yield each change from now on; a slow watcher gets only the newest. None: a change may have been missed."""

    def publish(self, event: Event) -> None: ...

    def subscribe(self) -> AsyncIterator[Event]:
        """Yield events from now on, none from before. A subscriber that falls too far behind is disconnected."""

    def signal(self, signal: Signal) -> None:
        """Send a hint to the process that runs the session, wherever that is. It may be lost."""

    def signals(self) -> AsyncIterator[Signal]:
        """Yield signals from now on, including those sent in this process. Pending duplicates are merged."""

    def forget(self, session_id: str) -> None:
        """Drop the state of a deleted session."""

    async def open(self) -> None:
        """Connect to the other processes. Failed connections are retried indefinitely."""

    async def close(self) -> None: ...
