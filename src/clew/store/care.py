"""Care: looking after a store, all of it at once: what it holds, what is wrong with it, searching it, copies of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from clew.store.facts import Fact
from clew.store.search import SearchPage, SearchQuery
from clew.store.session_list import SessionQuery, ShownPage
from clew.store.unsettled import PendingStream, QueuedMessage
from clew.transcript.message import MessageRow
from clew.transcript.model_call import ModelCall
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, Spend
from clew.transcript.spend import UsageGroup, UsageQuery
from clew.transcript.turn import Step, Tree

__all__ = ["Care", "Damage", "Rebuilt", "Whole"]


class Damage(msgspec.Struct, frozen=True):
    """Something a look at the whole store found wrong, with the ids it concerns."""

    what: str
    session_id: str | None = None
    id: str | None = None


class Whole(msgspec.Struct, frozen=True):
    """A session as its rows are, for looking it over. ``damaged`` says which did not decode. Steps are by their turns'
    ids, and in their order there.

    What is carried elsewhere is a portable session (:mod:`clew.store.portable`), which nothing is wrong with.
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
    """What came of a store that was made anew from its log; ``differences`` is empty when it equals the original."""

    sessions: int
    facts: int
    differences: tuple[Damage, ...] = ()


class Care(Protocol):
    """Looking after a store: all of it at once, searching, what is wrong with it, copies."""

    async def store_id(self) -> str:
        """What names this store and no other: the same for all who have it open."""
        ...

    async def session_ids(self) -> tuple[str, ...]: ...

    async def find_whole(self, session_id: str) -> Whole | None:
        """Everything of a session, as it was at one moment. Rows that cannot be decoded are kept and named."""
        ...

    async def load_usage(self, query: UsageQuery) -> tuple[UsageGroup, ...]:
        """Sums over model calls, those of sessions that are gone too, by their key; the one without a key last."""
        ...

    async def load_spend(self, session_ids: Collection[str]) -> dict[str, Spend]:
        """What each of these sessions has spent, with its subagents and theirs; of one that is not there, nothing."""
        ...

    async def list_shown(self, query: SessionQuery) -> ShownPage:
        """Return the page of :meth:`Conversations.list_sessions` as a list shows it: ``load_spend``,
        ``unsettled_sessions`` and ``failed_sessions`` of its sessions in one call."""
        ...

    async def search(self, query: SearchQuery) -> SearchPage:
        """Parts whose text, reasoning, tool input or tool output matches, of every settled message of every session.

        Hidden messages too. Everything sealed before the first page is found where the page says that it is complete:
        the index is brought up to date for it, or goes on being made after it. Raises ``NotSupported`` where
        ``capabilities.search`` is False, and on a store opened for reading that was never searched; ``InvalidInput``
        for a text without a word and for a cursor of another search.
        """
        ...

    async def rebuild_search(self) -> None:
        """Drop the index and make it again. Searching does that by itself when the index is missing or damaged."""
        ...

    async def verify(self) -> Sequence[Damage]:
        """The engine's own look at its storage (pages, foreign keys); slow, changes nothing."""
        ...

    async def losses(self) -> tuple[Damage, ...]:
        """What was acknowledged and is not there any more, as far as nobody has accepted it; each with its own id."""
        ...

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        """Note that a human has accepted a loss, which is then told no more. False when there is none of that id."""
        ...

    async def load_facts(self, stream_id: str) -> tuple[Fact, ...]:
        """The event log's facts of one stream, oldest first; none where no log is kept."""
        ...

    async def rebuild(self, target: Path) -> Rebuilt:
        """Make a new store at ``target`` from the event log alone, and compare it with this one."""
        ...

    async def backup(self, target: Path) -> None:
        """A consistent copy while others write. Refuses to overwrite."""
        ...

    async def write_ledger(self, target: Path) -> None:
        """Both ledgers as they are now, as plain tables of a SQLite file of their own. Refuses to overwrite."""
        ...
