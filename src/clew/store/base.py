"""The store contract: the guarantees of every store, whatever its backend.

Atomic: a unit is written completely or not at all, and one read call sees one state. Durable: when ``commit`` returns
:class:`Committed`, the unit survives the death of the process (``sync="process"``) or of the machine
(``sync="power"``). Order: units of one session commit in the order they were submitted. Absence: ``get_`` raises,
``find_`` returns None, ``load_`` returns the empty value, ``list_`` an empty page. Reads see everything committed
before them, including journalled chunks that are not folded yet; reading never writes.

Reading is split into three contracts, :class:`Conversations`, :class:`Triggers` and :class:`Maintenance`; callers
ask for the one they need. A store implements all three, and writes. ``clew.testing.store_suite`` verifies an
implementation.

Each replica has a row with a lease, which every heartbeat extends. All times are the store's clock, never a machine's.
A lapsed lease is never extended: a replica that finds its lease lapsed rejoins with a new id, and other replicas settle
what it ran before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from clew.errors import SessionNotFound, TurnNotFound
from clew.ids import SessionIdForm
from clew.store.commit_batcher import Answered, CommitBatcher
from clew.store.maintenance import Damage, FullSession, Maintenance, Rebuilt
from clew.store.pending_work import OpenCall, PendingStream, QueuedMessage, StreamTail
from clew.store.search import Cursor, SearchHit, SearchPage, SearchQuery, SessionPage, SessionQuery, ShownPage
from clew.store.trees import HistoryPages, Paths
from clew.store.unit import Outcome, Unit
from clew.store.workspaces import Workspaces
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.portable import Blob
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import Step, Tree, Turn
from clew.triggers.values.ledger import Direction, EventPage, EventQuery, LedgerEvent
from clew.triggers.values.routing import RouteKind
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.webhook import Webhook

__all__ = [
    "Blob",
    "Capabilities",
    "Conversations",
    "Cursor",
    "Damage",
    "FullSession",
    "LineSlice",
    "Maintenance",
    "Moment",
    "OpenCall",
    "PendingStream",
    "QueuedMessage",
    "Rebuilt",
    "Replica",
    "Replicas",
    "SearchHit",
    "SearchPage",
    "SearchQuery",
    "SessionPage",
    "SessionQuery",
    "ShownPage",
    "Store",
    "Triggers",
    "get_session",
    "get_turn",
]

T = TypeVar("T")


class Capabilities(msgspec.Struct, frozen=True):
    """Features of a store beyond the contract, the form of its session ids, and the preset made for it.

    Where ``chunk_durable`` is False, a unit that only makes a message grow may stay in memory until a unit that does
    more is committed, so nothing can be saved more often than at each step. ``required_metadata``: keys that every new
    session must have, as text. Where ``holds_sessions`` is False, nothing is read into memory that could be released.
    """

    chunk_durable: bool
    search: bool
    many_processes: bool
    session_ids: SessionIdForm = SessionIdForm.CLEW
    preset: Literal["guide", "checkpoint", "overlay", "turn"] = "guide"
    required_metadata: tuple[str, ...] = ()
    holds_sessions: bool = True

    @property
    def save_on(self) -> Literal["chunk", "step"]:
        """Return when a run's chunks are stored by default."""
        return "chunk" if self.chunk_durable else "step"


class LineSlice(msgspec.Struct, frozen=True):
    """Turns of a line in order, root first. ``complete``: nothing precedes them.

    ``pruned`` is every prune of the session, set where a view is loaded.
    """

    turns: tuple[LineTurn, ...]
    complete: bool
    pruned: tuple[Pruned, ...] = ()


class Conversations(Protocol):
    """Reads of sessions: their lines and trees, queues and streams, and the data they share."""

    async def find_session(self, session_id: str) -> Session | None: ...

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """Return sessions newest first by (updated_at, id). Reads no message."""
        ...

    async def list_children(self, parent_id: str) -> tuple[Session, ...]:
        """Return every session with this parent, oldest first; found by ``parent_id`` alone."""
        ...

    async def load_state(self, session_id: str) -> SessionState: ...

    async def load_line(
        self,
        session_id: str,
        *,
        through: str | None = None,
        turns: int | None = None,
        back_to_message: str | None = None,
        keep_damaged: bool = False,
        viewed: bool = False,
    ) -> LineSlice:
        """Return the line, or the end of it.

        ``through`` ends it at that turn (default: the open turn, else the head). ``turns`` limits it to that many from
        the end; ``back_to_message`` begins it at the turn that holds that message. A row that cannot be decoded raises
        ``RowUndecodable``; with ``keep_damaged`` it becomes a part that reports the damage. With ``viewed`` the ids and
        times of parts may be left out.
        """
        ...

    async def find_view(
        self,
        session_id: str,
        *,
        turns: int | None = None,
        keep_damaged: bool = False,
        kept: bool = False,
        near: bool = False,
    ) -> LineSlice | None:
        """Return the end of the line as far back as a view needs it; None when the session does not exist.

        It goes back to the tail of the newest compaction or, without one, covers the last ``turns`` turns or all.
        ``complete`` says that a view needs nothing before it. Ids and times of parts may be left out. ``kept``: what is
        cached in memory and was not written to since need not be read or checked against its seal again. ``near``:
        return None, too, if much of it would have to be read.
        """
        ...

    async def load_messages(
        self, session_id: str, *, keep_damaged: bool = False, among: Collection[str] | None = None
    ) -> tuple[MessageRow, ...]:
        """Return every message of the session by (created_at, id), on the line or not, queued and cancelled ones
        included; or those ``among`` some ids."""
        ...

    async def find_message(self, session_id: str, message_id: str) -> MessageRow | None:
        """Find a message of the session by clew's id."""
        ...

    async def load_client_messages(self, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        """Return the session's messages with this client id, oldest first; an edit may reuse an id. Answers have no
        client id, whatever their metadata says."""
        ...

    async def open_calls(self, session_id: str) -> tuple[OpenCall, ...]:
        """Return the session's tool calls without a result, wherever they are in it, by (message, index)."""
        ...

    async def unsettled_sessions(self, among: Collection[str] | None = None) -> tuple[str, ...]:
        """Return sessions with an open turn, a tool call without a result, a queued message, or a compaction in
        progress (a runner). With ``among`` only those of the given ones, at a cost that depends on their number
        alone."""
        ...

    async def newest_message_at(self, session_id: str) -> int:
        """Return the latest ``created_at`` of the session's messages; 0 without messages."""
        ...

    async def load_tree(self, session_id: str) -> Tree: ...

    async def find_turn(self, turn_id: str) -> Turn | None:
        """Find a turn by its id alone, in any session."""
        ...

    async def load_steps(self, turn_id: str) -> tuple[Step, ...]: ...

    async def load_calls(self, session_id: str | None) -> tuple[ModelCall, ...]:
        """Return every model call of the session, whatever its purpose, or of all deleted sessions (None), by
        (asked_at, id)."""
        ...

    async def open_model_calls(self, session_id: str | None = None) -> tuple[ModelCall, ...]:
        """Return model calls that have not ended, of one session or of all, by (asked_at, id)."""
        ...

    async def load_pruned(self, session_id: str, messages: Collection[str] | None = None) -> tuple[Pruned, ...]:
        """Return every prune of the session, or those of some of its messages, by (seq, message, part)."""
        ...

    async def load_queue(self, session_id: str) -> tuple[QueuedMessage, ...]:
        """Return the queue in firing order: interrupting messages first, then by queued_at, then by id."""
        ...

    async def find_prompt(self, digest: str) -> str | None:
        """Find a system prompt, or a list of tools as JSON, by its digest. User prompts are messages."""
        ...

    async def find_blob(self, sha256: str, owner: str | None = None) -> Blob | None:
        """Find a blob; with an ``owner``, only if one of their sessions names it."""
        ...

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]: ...

    async def list_projects(self) -> tuple[str, ...]:
        """Return the names of all projects that have rules."""
        ...

    async def pending_streams(self, session_id: str | None = None) -> tuple[PendingStream, ...]:
        """Return streams with chunks that no part holds yet, of one session or of all."""
        ...

    async def load_tail(self, session_id: str, message_id: str) -> StreamTail:
        """Return what the journal holds of this message's stream beyond its parts, without reading the parts."""
        ...


class Replica(msgspec.Struct, frozen=True):
    """A process that serves the store. ``alive``: its lease was valid when it was read; ``draining``: it starts no new
    work. ``url`` is its address, where known."""

    id: str
    url: str | None
    version: str
    started_at: int
    beat_at: int
    lease_until: int
    draining: bool
    alive: bool


class Replicas(Protocol):
    """Reads of the processes that serve a store, and of the sessions that no live process handles."""

    async def find_replica(self, replica_id: str) -> Replica | None: ...

    async def list_replicas(self) -> tuple[Replica, ...]:
        """Return all replicas that have joined and not left, lapsed ones included, by (started_at, id)."""
        ...

    async def run_by(self, replica_id: str) -> tuple[str, ...]:
        """Return the ids of the sessions that this replica runs, according to the store."""
        ...

    async def orphaned_sessions(self, replica_id: str) -> tuple[str, ...]:
        """Return the ids of orphaned sessions: those whose runner's lease has lapsed or whose runner has left, those
        recorded as run by ``replica_id`` itself, and those without a runner that have queued messages and no open
        turn."""
        ...


class Moment(Conversations, HistoryPages, Paths, Replicas, Workspaces, Protocol):
    """Reads as of one moment: everything that is read before a session is acquired, in one call."""

    async def at_once(self, session_id: str, ask: Callable[[Moment], Coroutine[Any, Any, T]]) -> T:
        """Answer several questions about one session, and about shared data, as of one moment.

        ``ask`` puts the questions to its argument and awaits nothing else; it may be called again, or in another
        thread. All of them together cost one hand-over to a thread.
        """
        ...

    async def seals(self, session_id: str) -> dict[str, str]:
        """Return the digests of settled messages."""
        ...


class Triggers(Protocol):
    """Reads of what was not typed by a user: the events ledger, schedules, webhooks, and the sessions they are for."""

    async def find_named(self, name: str, owner: str | None) -> str | None:
        """Return the id of the session that a name means to an owner: its id, or the alias that owner gave it.

        Without an owner (None) every session is found by its id, and sessions without an owner by their alias.
        """
        ...

    async def load_routed(self, kind: RouteKind, name: str, owner: str | None = None) -> tuple[Session, ...]:
        """Return the sessions whose metadata has this name under that key, oldest first by (created_at, id), 20 at
        most.

        Archived sessions and those of subagents are skipped. Names are per owner: None finds sessions without one.
        """
        ...

    async def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        """Find an event by name: an inbound one as it arrived, an outbound one as of its newest attempt."""
        ...

    async def find_repeated(self, source: str, digest: str, since: int) -> LedgerEvent | None:
        """Return the inbound event of that source and digest that was accepted at ``since`` or later; duplicates and
        later attempts do not count."""
        ...

    async def find_event_of_message(self, session_id: str, message_id: str) -> LedgerEvent | None:
        """Find the newest attempt at the inbound event that became this message."""
        ...

    async def list_events(self, query: EventQuery) -> EventPage:
        """Return the events ledger, newest first. An inbound event names the first turn that holds its message."""
        ...

    async def open_events(self, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        """Return attempts at inbound events without an outbound event yet, oldest first; of one session or of all."""
        ...

    async def list_schedules(self) -> tuple[Schedule, ...]:
        """Return all schedules by id."""
        ...

    async def list_webhooks(self) -> tuple[Webhook, ...]:
        """Return all webhooks by name."""
        ...


class Store(Moment, Triggers, Maintenance, Protocol):
    """The durable boundary. Implementations: ``sql/sqlite``, in a file or in memory, ``sql/postgres``, and ``files``.

    Everything is written by units, whichever contract reads it.
    """

    @property
    def url(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        """Submit a unit; the future resolves when it is durable, refused, or failed. Called on the event loop."""
        ...

    def submit_all(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None:
        """Submit units of different sessions together. Each one is durable, refused or failed by itself.

        ``answered`` is called on the event loop with the results, of all of them or of some at a time. Units that
        nothing awaits (``awaited`` False) and that are not synced may be delayed for a moment to share a commit; a call
        with ``awaited`` True and no units ends that delay for the units before it.
        """
        ...

    @property
    def hub(self) -> CommitBatcher:
        """Return the batcher that collects the units of all streams on the running event loop."""
        ...

    async def commit(self, unit: Unit) -> Outcome:
        """Submit a unit and wait for the result."""
        ...

    def watch(self, listener: Callable[[Unit], None]) -> None:
        """Call ``listener`` on the event loop with every unit from now on, once it is durable."""
        ...

    async def release(self, session_id: str) -> None:
        """Allow the store to free what it has read of a session into memory: the session is no longer in use."""
        ...

    def announce(self, url: str | None) -> None:
        """Publish the URL that serves this store to processes that try to open it; None withdraws it.

        Does nothing here, for stores that only their own process can reach.
        """

    async def check_writable(self) -> None:
        """Raise when nothing could be stored now: the disk is full, or the store is gone."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, then release all resources. Safe to call twice."""
        ...


async def get_session(store: Conversations, session_id: str) -> Session:
    """Return the session, or raise :class:`SessionNotFound`."""
    session = await store.find_session(session_id)
    if session is None:
        raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
    return session


async def get_turn(store: Store, turn_id: str) -> Turn:
    """Return the turn, whichever session it belongs to, or raise :class:`TurnNotFound`."""
    turn = await store.find_turn(turn_id)
    if turn is None:
        raise TurnNotFound(f"there is no turn {turn_id}", turn_id=turn_id)
    return turn
