"""Maintenance of a whole store: its contents, damage, search, copies."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from clew.store.facts import Fact
from clew.store.pending_work import PendingStream, QueuedMessage
from clew.store.search import SearchPage, SearchQuery, SessionQuery, ShownPage
from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, Spend
from clew.transcript.spend import UsageGroup, UsageQuery
from clew.transcript.turn import Step, Tree

__all__ = ["Damage", "FullSession", "Maintenance", "Rebuilt"]


class Damage(msgspec.Struct, frozen=True):
    """A problem found by checking the store, with the ids it concerns."""

    what: str
    session_id: str | None = None
    id: str | None = None


class FullSession(msgspec.Struct, frozen=True):
    """A session with all its rows, for checking it. ``damaged`` lists those that did not decode. Steps are ordered by
    their turns' ids, and by index within a turn.

    To move a session elsewhere use a portable session (:mod:`clew.store.portable`), which has no damage.
    """

    session: Session
    messages: tuple[MessageRow, ...]
    tree: Tree
    queue: tuple[QueuedMessage, ...]
    seals: dict[str, str]
    pending: tuple[PendingStream, ...]
    damaged: tuple[Damage, ...] = ()
    pruned: tuple[Pruned, ...] = ()
    calls: tuple[ModelCall, ...] = ()
    steps: tuple[Step, ...] = ()


class Rebuilt(msgspec.Struct, frozen=True):
    """The result of rebuilding a store from its log; ``differences`` is empty when it equals the original."""

    sessions: int
    facts: int
    differences: tuple[Damage, ...] = ()


class Maintenance(Protocol):
    """Maintenance of a store: reading all of it, searching, finding damage, making copies."""

    async def store_id(self) -> str:
        """Return the store's unique id, the same for every process that has it open."""
        ...

    async def session_ids(self) -> tuple[str, ...]: ...

    async def unfinished_sessions(self) -> tuple[str, ...]:
        """Return the sessions that a killed process left half copied or half deleted, which no other read returns."""
        ...

    async def load_message_ids(self, session_id: str) -> tuple[str, ...]:
        """Return the ids of every message, in the order of :meth:`Conversations.load_messages`. Reads no content."""
        ...

    async def find_full_session(self, session_id: str) -> FullSession | None:
        """Return everything of a session, as of one moment. Rows that cannot be decoded are included and reported."""
        ...

    async def load_usage(self, query: UsageQuery) -> tuple[UsageGroup, ...]:
        """Return sums over model calls by key, those of deleted sessions included; the sum without a key comes last."""
        ...

    async def load_spend(self, session_ids: Collection[str]) -> dict[str, Spend]:
        """Return the spend of each of these sessions, including their subagents, recursively; unknown sessions are left
        out."""
        ...

    async def list_shown(self, query: SessionQuery) -> ShownPage:
        """Return the page of :meth:`Conversations.list_sessions` as a list displays it: ``load_spend``,
        ``unsettled_sessions`` and ``failed_sessions`` of its sessions in one call."""
        ...

    async def blob_bytes(self) -> int:
        """Return the bytes of all stored files together."""
        ...

    async def search(self, query: SearchQuery) -> SearchPage:
        """Return parts whose text, reasoning, tool input or tool output matches, in every settled message of every
        session.

        Hidden messages are included. A page marked complete covers everything sealed before the first page: the index
        is brought up to date for it, or afterwards if the page is not complete. Raises ``NotSupported`` where
        ``capabilities.search`` is False, and on a read-only store that was never searched; ``InvalidInput`` for a text
        without a word and for a cursor of another search.
        """
        ...

    async def rebuild_search(self) -> None:
        """Drop the index and build it again. Searching does so by itself when the index is missing or damaged."""
        ...

    async def verify(self) -> Sequence[Damage]:
        """Check the engine's storage (pages, foreign keys); slow, changes nothing."""
        ...

    async def losses(self) -> tuple[Damage, ...]:
        """Return acknowledged commits that are missing now and were not accepted as lost, each with its own id."""
        ...

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        """Record that a user accepted a loss, which is not reported again. Return False when no loss has this id."""
        ...

    async def load_facts(self, stream_id: str) -> tuple[Fact, ...]:
        """Return the event log's facts of one stream, oldest first; empty without an event log."""
        ...

    async def rebuild(self, target: Path) -> Rebuilt:
        """Build a new store at ``target`` from the event log alone, and compare it with this one."""
        ...

    async def backup(self, target: Path) -> None:
        """Write a consistent copy while other writes continue. Refuses to overwrite a file."""
        ...

    async def write_ledger(self, target: Path) -> None:
        """Write the current state of both ledgers as plain tables of a separate SQLite file. Refuses to overwrite a
        file."""
        ...
