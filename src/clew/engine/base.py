"""What every part of the facade stands on: the host, the runtime, and the one gate for ids from outside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec.structs import replace

from clew import ids
from clew.errors import InvalidInput
from clew.store.base import get_session, get_turn
from clew.transcript.session import Session

if TYPE_CHECKING:
    # What runs stand on is imported when an engine is opened: importing clew stays quick.
    from clew.runtime.host import Host
    from clew.runtime.runtime import Runtime

__all__ = ["EnginePart", "check_limit"]


class EnginePart:
    """Holds nothing of its own: each part of the facade adds the methods of one noun."""

    def __init__(self, host: Host, runtime: Runtime) -> None:
        self._host = host
        self._runtime = runtime
        self._store = host.store
        self._adding_up = asyncio.Lock()

    async def get_session(self, session_id: str) -> Session:
        """The session as it is now, with what it has spent."""
        session = await self._find_own(session_id)
        return replace(session, spend=(await self._store.load_spend([session.id]))[session.id])

    async def _find_own(self, session_id: str) -> Session:
        """The session without what it has spent, which takes longer the more it has asked."""
        return await get_session(self._store, self._own(session_id))

    def _own(self, session_id: str) -> str:
        """The one gate for ids of sessions from outside: their form, and whose they are.

        Every method that takes one passes through here first, and ids of turns by way of their session; a test holds
        them to it. There is one owner today, ``local``, who owns all there is.
        """
        return ids.check_session_id(session_id, self._store.capabilities.session_ids)

    async def _own_turn(self, turn_id: str) -> str:
        """The same for the id of a turn."""
        turn = await get_turn(self._store, ids.check_turn_id(turn_id))
        self._own(turn.session_id)
        return turn.id


def check_limit(limit: int | None) -> None:
    """How much of a session one page may hold; None is all of it."""
    if limit is not None and not 1 <= limit <= 500:
        raise InvalidInput(f"limit must be from 1 to 500, not {limit}")
