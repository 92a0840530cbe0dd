"""What every part of the facade stands on: the host, the runtime, and the one gate for ids from outside."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec.structs import replace

from clew import ids
from clew.engine.workspace import resolve_workspace
from clew.errors import InvalidInput, SessionNotFound, TurnNotFound
from clew.store.base import get_session
from clew.transcript.session import Session

if TYPE_CHECKING:
    # What runs stand on is imported when an engine is opened: importing clew stays quick.
    from clew.runtime.host import Host
    from clew.runtime.runtime import Runtime

__all__ = ["EnginePart", "check_limit"]


class EnginePart:
    """Holds nothing of its own: each part of the facade adds the methods of one noun.

    ``owner`` is whose sessions it sees, None for all there are; ``roots`` the folders these may work in, None for any.
    """

    def __init__(self, host: Host, runtime: Runtime) -> None:
        self._host = host
        self._runtime = runtime
        self._store = host.store
        self._adding_up = asyncio.Lock()
        # By owner; a lock exists while it is held or awaited.
        self._imports = WeakValueDictionary[str | None, asyncio.Lock]()
        self.owner: str | None = None
        self.roots: tuple[Path, ...] | None = None

    async def get_session(self, session_id: str) -> Session:
        """The session as it is now, with what it has spent."""
        session = await self._find_own(session_id)
        return replace(session, spend=(await self._store.load_spend([session.id]))[session.id])

    async def _find_own(self, session_id: str) -> Session:
        """The session without what it has spent, which takes longer the more it has asked."""
        return await get_session(self._store, await self._own(session_id))

    async def _own(self, name: str) -> str:
        """The one gate for ids and aliases of sessions from outside: their form, and whose they are.

        Every method that takes one passes through here first, and ids of turns by way of their session; a test holds
        them to it. To an owner a stranger's session is not there: the same look finds neither it nor one that is none.
        """
        form = self._store.capabilities.session_ids
        if self.owner is None:
            if ids.is_session_id(name, form) and (form is not ids.SessionIdForm.SHARED or ids.is_session_id(name)):
                return name
            found = await self._store.find_named(name, None) if ids.is_alias(name) else None
            return found if found is not None else ids.check_session_id(name, form)
        if not (ids.is_session_id(name, form) or ids.is_alias(name)):
            ids.check_session_id(name, form)
        found = await self._store.find_named(name, self.owner)
        if found is None:
            raise SessionNotFound(f"there is no session {name}", session_id=name)
        return found

    async def _own_turn(self, turn_id: str) -> str:
        """The same for the id of a turn."""
        turn = await self._store.find_turn(ids.check_turn_id(turn_id))
        try:
            if turn is not None:
                await self._own(turn.session_id)
                return turn.id
        except SessionNotFound:
            if self.owner is None:
                raise
        raise TurnNotFound(f"there is no turn {turn_id}", turn_id=turn_id)

    async def _place(self, folder: str | Path | None) -> Path | None:
        """A workspace as somebody outside names it; an owner's lies in one of the folders that are theirs."""
        if folder is None:
            return None
        return await asyncio.to_thread(resolve_workspace, folder, self.roots)


def check_limit(limit: int | None) -> None:
    """How much of a session one page may hold; None is all of it."""
    if limit is not None and not 1 <= limit <= 500:
        raise InvalidInput(f"limit must be from 1 to 500, not {limit}")
