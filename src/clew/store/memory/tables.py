"""The contents of the memory store: a value for each session, and shared tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from clew.clock import Clock, SystemClock
from clew.errors import StoreClosed
from clew.store.base import Blob
from clew.store.commit_hooks import Watched
from clew.store.memory.session_value import SessionValue
from clew.store.replicas import Replica
from clew.transcript.model_call import ModelCall
from clew.transcript.session import Session, SessionState, Spend
from clew.triggers.values.ledger import Direction, LedgerEvent
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.webhook import Webhook

__all__ = ["EventKey", "MemoryTables", "SharedTables", "event_key"]

EventKey = tuple[str, ...]
"""What makes an event of the ledger one of its kind: direction, source and source id, and from the second attempt on
its number."""


def event_key(direction: Direction, source: str, source_id: str, attempt: int) -> EventKey:
    return (direction, source, source_id, *((str(attempt),) if attempt > 1 else ()))


class SharedTables(msgspec.Struct):
    """Tables shared by all sessions. File stores write and read each field by its name."""

    prompts: dict[str, str] = {}
    blobs: dict[str, Blob] = {}
    rules: dict[str, tuple[dict[str, Any], ...]] = {}
    events: dict[EventKey, LedgerEvent] = {}
    schedules: dict[str, Schedule] = {}
    webhooks: dict[str, Webhook] = {}
    calls: dict[str, tuple[ModelCall, ...]] = {}
    """Model calls that outlived their session, by the day they were asked."""

    def tables(self) -> dict[str, dict[Any, Any]]:
        """The tables by name."""
        return msgspec.structs.asdict(self)


class MemoryTables(Watched):
    """The tables, and the two ways to them: one session, or all. A store that keeps sessions elsewhere brings them."""

    def __init__(self) -> None:
        self._values: dict[str, SessionValue] = {}
        self._shared = SharedTables()
        # Beside what file stores write: who serves a store is true while they do.
        self._replicas: dict[str, Replica] = {}
        self._clock: Clock = SystemClock()
        self._closed = False

    async def _find(self, session_id: str) -> SessionValue | None:
        if self._closed:
            raise StoreClosed("the store is closed")
        return self._values.get(session_id)

    async def _read(self, session_id: str) -> SessionValue:
        """The session to read from; one that holds nothing where there is none."""
        return await self._find(session_id) or SessionValue({}, {"state": SessionState()})

    async def _list_all(self) -> None:
        """Before sessions are listed."""

    async def _bring_unsettled(self) -> None:
        """Before something unfinished is looked for: every session that has something is in memory then."""

    def _spend_of(self, session_id: str) -> Spend:
        """Return the session's own spend; zero if there is no session."""
        value = self._values.get(session_id)
        return value.spend if value is not None else Spend(0, 0, 0.0, 0)

    def _has_failed(self, session_id: str) -> bool:
        value = self._values.get(session_id)
        return value is not None and value.has_failed

    def _named(self, name: str, owner: str | None) -> str | None:
        known = self._session_at(name)
        if known is not None and owner in (None, known.owner):
            return name
        return next((one.id for one in self._sessions() if (one.alias, one.owner) == (name, owner)), None)

    def _session_at(self, session_id: str) -> Session | None:
        value = self._values.get(session_id)
        return value.session if value is not None else None

    def _names_blob(self, owner: str, sha256: str) -> bool:
        return any(sha256 in value.blobs for value in self._values.values() if value.session.owner == owner)

    def _sessions(self) -> Iterable[Session]:
        return (value.session for value in self._values.values())
