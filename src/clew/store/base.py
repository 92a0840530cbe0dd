"""The store contract: what every store promises, whatever it is made of.

Atomic: a unit is written whole or not at all, and one reader call sees one state. Durable: when ``commit`` returns
:class:`Committed`, the unit survives the death of the process (``sync="process"``) or of the machine
(``sync="power"``). Order: units of one session commit in the order they were submitted. Absence: ``get_`` raises,
``find_`` returns None, ``load_`` gives the empty value, ``list_`` an empty page. Reads show everything that was
committed before them, chunks that are journalled and not yet folded included; reading never writes.

What is read is told in three contracts, :class:`Conversations`, :class:`Triggers` and :class:`Care`; whoever needs one
of them asks for that one. A store keeps all three, and writes. ``clew.testing.store_suite`` says whether it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Hashable, Sequence
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from clew.errors import SessionNotFound, TurnNotFound
from clew.ids import SessionIdForm
from clew.store.care import Care, Damage, Rebuilt, Whole
from clew.store.hub import Answered, Hub
from clew.store.pages import Looks
from clew.store.paths import Paths
from clew.store.replicas import Replicas
from clew.store.search import SearchHit, SearchPage, SearchQuery
from clew.store.session_list import Cursor, SessionPage, SessionQuery, ShownPage
from clew.store.tail import StreamTail
from clew.store.unit import Outcome, Unit
from clew.store.unsettled import OpenCall, PendingStream, QueuedMessage
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.portable import Blob
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import Step, Tree, Turn
from clew.triggers.ledger import Direction, EventPage, EventQuery, LedgerEvent
from clew.triggers.routing import RouteKind
from clew.triggers.schedule import Schedule
from clew.triggers.webhook import Webhook

__all__ = [
    "Blob",
    "Capabilities",
    "Care",
    "Conversations",
    "Cursor",
    "Damage",
    "LineSlice",
    "Moment",
    "OpenCall",
    "PendingStream",
    "QueuedMessage",
    "Rebuilt",
    "SearchHit",
    "SearchPage",
    "SearchQuery",
    "SessionPage",
    "SessionQuery",
    "ShownPage",
    "Store",
    "Triggers",
    "Whole",
    "get_session",
    "get_turn",
]

T = TypeVar("T")


class Capabilities(msgspec.Struct, frozen=True):
    """What a store can do beyond the contract, which form its session ids have, and which preset is made for it.

    Where ``chunk_durable`` is False, a unit that only makes a message grow may live in memory until one that does more
    is committed: nothing can be saved more often than at each step. ``required_metadata``: whoever makes a session must
    give these keys, as text. Where ``holds_sessions`` is False, nothing is read into memory that could be released.
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
        """When a run's chunks are stored where nobody has said."""
        return "chunk" if self.chunk_durable else "step"


class LineSlice(msgspec.Struct, frozen=True):
    """Turns of a line in order, root side first. ``complete`` says that nothing lies before them.

    ``pruned`` is every prune of the session, filled in where a view is loaded.
    """

    turns: tuple[LineTurn, ...]
    complete: bool
    pruned: tuple[Pruned, ...] = ()


class Conversations(Protocol):
    """Reading sessions, their lines and trees, their queues and streams, and what they share."""

    async def find_session(self, session_id: str) -> Session | None: ...

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        """Newest first by (updated_at, id). Reads no message."""
        ...

    async def list_children(self, parent_id: str) -> tuple[Session, ...]:
        """Every session whose parent this is, oldest first; found by ``parent_id`` alone."""
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
        """The line, or the end of it.

        ``through`` ends it at that turn (default: the open turn, else the head). ``turns`` takes at most that many
        from the end; ``back_to_message`` goes back as far as the turn that holds that message. A row that cannot
        be decoded raises ``RowUndecodable``; with ``keep_damaged`` it is shown as a part that says so. Of a part
        that is only ``viewed`` its id and its times may be left out.
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
        """The end of the line as far back as a view needs it; None when there is no such session.

        Back to the tail of the newest compaction; where there is none, the last ``turns`` turns, or all. ``complete``
        says that a view needs nothing before it. Of a part it has what that says; its id and its times may be left
        out. ``kept``: what is still in memory of it, and was not written to
        since, need not be read again, nor be held against its seal once more. ``near``: None as well where much of it
        would have to be read.
        """
        ...

    async def load_messages(self, session_id: str, *, keep_damaged: bool = False) -> tuple[MessageRow, ...]:
        """Every message of the session by (created_at, id), on the line or not, queued and cancelled ones too."""
        ...

    async def find_message(self, session_id: str, message_id: str) -> MessageRow | None:
        """By clew's id, inside its session only."""
        ...

    async def load_client_messages(self, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        """By the client's own id, inside its session only; oldest first (an edit may use an id again). Answers have
        none, whatever their metadata say."""
        ...

    async def open_calls(self, session_id: str) -> tuple[OpenCall, ...]:
        """Tool calls of the session that have no result, wherever in it they are, by (message, index)."""
        ...

    async def unsettled_sessions(self, among: Collection[str] | None = None) -> tuple[str, ...]:
        """Sessions with an open turn, a tool call without a result, something in the queue, or a summary in the making
        (a runner); all there are, or those ``among`` some, which costs no more than there are of these."""
        ...

    async def newest_message_at(self, session_id: str) -> int:
        """The latest ``created_at`` of the session's messages; 0 when it has none."""
        ...

    async def load_tree(self, session_id: str) -> Tree: ...

    async def find_turn(self, turn_id: str) -> Turn | None:
        """By its id alone, whichever session it belongs to."""
        ...

    async def load_steps(self, turn_id: str) -> tuple[Step, ...]: ...

    async def load_calls(self, session_id: str | None) -> tuple[ModelCall, ...]:
        """Every model call of the session, whatever for, or of all that are gone (None), by (asked_at, id)."""
        ...

    async def open_model_calls(self, session_id: str | None = None) -> tuple[ModelCall, ...]:
        """Model calls that have not ended, of one session or of all there are, by (asked_at, id)."""
        ...

    async def load_pruned(self, session_id: str, messages: Collection[str] | None = None) -> tuple[Pruned, ...]:
        """Every prune of the session, or those of some of its messages, by (seq, message, part)."""
        ...

    async def load_queue(self, session_id: str) -> tuple[QueuedMessage, ...]:
        """In firing order: interrupting ones first, then by queued_at, then by id."""
        ...

    async def find_prompt(self, digest: str) -> str | None:
        """A system prompt, or a list of tools as JSON, by its digest; what a person sends is a message."""
        ...

    async def find_blob(self, sha256: str, owner: str | None = None) -> Blob | None:
        """With an ``owner``, only where a session of theirs names it."""
        ...

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]: ...

    async def list_projects(self) -> tuple[str, ...]:
        """Every project that has rules, by its name."""
        ...

    async def pending_streams(self, session_id: str | None = None) -> tuple[PendingStream, ...]:
        """Streams with chunks that no part holds yet, of one session or of all."""
        ...

    async def load_tail(self, session_id: str, message_id: str) -> StreamTail:
        """What the journal holds of this message's stream beyond its parts, of which none is read."""
        ...


class Moment(Conversations, Looks, Paths, Replicas, Protocol):
    """Conversations as they are at one moment: what is asked before a session is taken, all of it at once."""

    async def at_once(
        self,
        session_id: str,
        ask: Callable[[Moment], Coroutine[Any, Any, T]],
        *,
        hot: bool = False,
        again: str | None = None,
    ) -> T:
        """Several questions about one session, and about what sessions share, answered as of one moment.

        ``ask`` puts them to what it is given, waits for nothing else, and may be called again or in another thread. It
        costs one hand-over where each question would cost one. ``hot``: it is about a few rows that were written just
        now, so a store may answer on the spot, where that is quicker than to ask a thread and no more is to be read.
        ``again`` names what is read of the session: where the same took no time just now, it may do so too.
        """
        ...

    async def seals(self, session_id: str) -> dict[str, str]:
        """The digests of settled messages."""
        ...


class Triggers(Protocol):
    """Reading what no human typed: the events ledger, schedules, webhooks, and whom they are for, by whatever name."""

    async def find_named(self, name: str, owner: str | None) -> str | None:
        """The id of the session that a name means to an owner: its id, else the alias that owner gave it.

        Nobody (None) knows every session by its id, and by alias those without an owner.
        """
        ...

    async def load_routed(self, kind: RouteKind, name: str, owner: str | None = None) -> tuple[Session, ...]:
        """The sessions whose metadata has this name under that key, oldest first by (created_at, id), 20 at most.

        Archived ones and those of subagents are passed over. Names are an owner's own: None finds those without one.
        """
        ...

    async def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        """The event of that name: of inbound ones as it came in, of outbound ones the newest attempt's."""
        ...

    async def find_repeated(self, source: str, digest: str, since: int) -> LedgerEvent | None:
        """Return the inbound event of that source and digest that was accepted at ``since`` or later; duplicates and
        later attempts do not count."""
        ...

    async def find_event_of_message(self, session_id: str, message_id: str) -> LedgerEvent | None:
        """The newest attempt at the inbound event that became this message."""
        ...

    async def list_events(self, query: EventQuery) -> EventPage:
        """The events ledger, newest first. An inbound event names the first turn that holds its message."""
        ...

    async def open_events(self, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        """Attempts at inbound events that nothing went out for yet, oldest first; of one session or of every one."""
        ...

    async def list_schedules(self) -> tuple[Schedule, ...]:
        """All of them, by id."""
        ...

    async def list_webhooks(self) -> tuple[Webhook, ...]:
        """All of them, by name."""
        ...


class Store(Moment, Triggers, Care, Protocol):
    """The durable boundary. Implementations: ``memory``, ``files`` (built on it), and ``sql/sqlite``.

    Everything is written by units, whichever contract reads it again.
    """

    @property
    def url(self) -> str: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        """Hand a unit over; the future resolves when it is durable, refused, or failed. Called on the event loop."""
        ...

    def submit_all(self, units: Sequence[Unit], answered: Answered, *, awaited: bool) -> None:
        """Hand over units of different sessions together. Each is durable, refused or failed by itself.

        ``answered`` is called on the event loop with what became of them: of all at once, or of some at a time. What
        is not ``awaited`` by anybody, and not synced either, may be kept back for a moment to share a commit; no units
        that are awaited end that for those before them.
        """
        ...

    @property
    def hub(self) -> Hub:
        """What gathers the units of all streams on the running event loop."""
        ...

    async def commit(self, unit: Unit) -> Outcome:
        """``submit`` and wait."""
        ...

    def watch(self, told: Callable[[Unit], None]) -> None:
        """Call ``told`` on the event loop with every unit from now on, once it is durable."""
        ...

    def version(self, session_id: str | None) -> Hashable | None:
        """Something that stays the same for as long as the answers about a session do, or, with None, about the list
        of sessions and what each has spent. None where it is not known, as of a store that others may be writing to.

        Asked before a question, it holds for the answer or is older than it. Called on the event loop.
        """
        ...

    async def release(self, session_id: str) -> None:
        """Nobody works on the session any more: a store that has read it into memory may let go of it."""
        ...

    def announce(self, url: str | None) -> None:
        """Tell others who would open this store where it is served; None takes it back.

        Nothing to do, as here, for a store that only its own process can reach.
        """

    async def check_writable(self) -> None:
        """Raise when nothing could be stored now: the disk is full, or the store is gone."""
        ...

    async def close(self) -> None:
        """Finish what was submitted, then let go of everything. Safe to call twice."""
        ...


async def get_session(store: Conversations, session_id: str) -> Session:
    """The session, or :class:`SessionNotFound`."""
    session = await store.find_session(session_id)
    if session is None:
        raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
    return session


async def get_turn(store: Store, turn_id: str) -> Turn:
    """The turn, whichever session it belongs to, or :class:`TurnNotFound`."""
    turn = await store.find_turn(turn_id)
    if turn is None:
        raise TurnNotFound(f"there is no turn {turn_id}", turn_id=turn_id)
    return turn
