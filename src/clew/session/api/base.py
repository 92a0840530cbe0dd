"""The base class of the engine's parts, which resolves ids and paths that callers pass."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec.structs import replace

from clew import ids
from clew.errors import InvalidInput, SessionNotFound, TurnNotFound
from clew.session.api.workspace import resolve_workspace
from clew.store.base import get_session
from clew.transcript.session import Session

if TYPE_CHECKING:
    # Imported when an engine is opened, so that importing clew stays fast.
    from clew.session.host import Host
    from clew.session.runtime import Runtime

__all__ = ["EnginePart", "check_limit"]


class EnginePart:
    """The base class of the engine's parts, each of which adds the methods of one noun.

    ``owner`` limits it to the sessions of one owner; None is no limit. ``roots`` are the folders in which these may
    have their workspaces; None is any folder.
    """

    def __init__(self, host: Host, runtime: Runtime) -> None:
        self._host = host
        self._runtime = runtime
        self._store = host.store
        self._usage_lock = asyncio.Lock()
        # By owner; a lock exists only while a task holds or awaits it.
        self._import_locks = WeakValueDictionary[str | None, asyncio.Lock]()
        self.owner: str | None = None
        self.roots: tuple[Path, ...] | None = None

    async def get_session(self, session_id: str) -> Session:
        """Return the session as it is now, with its spending."""
        session = await self._get_session(session_id)
        return replace(session, spend=(await self._store.load_spend([session.id]))[session.id])

    async def _get_session(self, session_id: str) -> Session:
        """Return the session without its spending, whose loading time grows with the number of model calls."""
        return await get_session(self._store, await self._resolve_session(session_id))

    async def _resolve_session(self, name: str) -> str:
        """Resolve the id or alias of a session that a caller passed: check its form, and that it belongs to the owner.

        Every method that takes one calls this first, and resolves turn ids through their session; a test ensures that.
        An owner cannot tell sessions of other owners from missing ones: one lookup finds neither.
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

    async def _resolve_turn(self, turn_id: str) -> str:
        """Resolve the id of a turn in the same way."""
        turn = await self._store.find_turn(ids.check_turn_id(turn_id))
        try:
            if turn is not None:
                await self._resolve_session(turn.session_id)
                return turn.id
        except SessionNotFound:
            if self.owner is None:
                raise
        raise TurnNotFound(f"there is no turn {turn_id}", turn_id=turn_id)

    async def _resolve_workspace(self, folder: str | Path | None) -> Path | None:
        """Resolve a workspace path that a caller passed; an owner's must be in one of their folders."""
        if folder is None:
            return None
        return await asyncio.to_thread(resolve_workspace, folder, self.roots)


def check_limit(limit: int | None) -> None:
    """Check a page size; None is no limit."""
    if limit is not None and not 1 <= limit <= 500:
        raise InvalidInput(f"limit must be from 1 to 500, not {limit}")
