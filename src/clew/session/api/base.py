"""The base class of the engine's parts, which resolves ids and paths that callers pass."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from msgspec.structs import replace

from clew import ids
from clew.errors import InvalidInput, SessionNotFound, TurnNotFound
from clew.live.base import Live, Status
from clew.session.acquire.waiting import present_status
from clew.store.base import Store, get_session
from clew.transcript.session import Session
from clew.transcript.value_check import check_value

if TYPE_CHECKING:
    # Imported when the runtime is made, so that importing clew, and reading a store, stay fast.
    from clew.session.cluster.lease import Lease
    from clew.session.host import Host
    from clew.session.runtime import Runtime

__all__ = ["EnginePart", "check_limit", "without_links"]


class EnginePart:
    """The base class of the engine's parts, each of which adds the methods of one noun.

    Reading takes only the store, the live layer and the lease. The host, which has the tools and the providers, and
    the runtime, which acts on sessions, are made when an operation first needs them.

    ``owner`` limits it to the sessions of one owner; None is no limit. ``roots`` are the folders in which these may
    have their workspaces; None is any folder.
    """

    def __init__(self, store: Store, live: Live, lease: Lease, compose: Callable[[], Host]) -> None:
        self._store = store
        self._live = live
        self._lease = lease
        self._compose = compose
        self._usage_lock = asyncio.Lock()
        # By owner; a lock exists only while a task holds or awaits it.
        self._import_locks = WeakValueDictionary[str | None, asyncio.Lock]()
        self.owner: str | None = None
        self.roots: tuple[Path, ...] | None = None

    @cached_property
    def _host(self) -> Host:
        return self._compose()

    @property
    def _runtime(self) -> Runtime:
        raise NotImplementedError

    def _is_live_here(self, session_id: str) -> bool:
        """Return whether the session has an active operation in this engine."""
        raise NotImplementedError

    async def _present_status(self, session_id: str) -> Status:
        """Return the session's current status without the state of its queue."""
        is_live = self._is_live_here(session_id)
        return await present_status(self._store, self._live, self._lease, session_id, is_live=is_live)

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
        return await asyncio.to_thread(_resolve_folder, folder, self.roots)

    async def _resolve_new_folder(self, folder: str | Path) -> str:
        """Resolve the path of a folder that is to be made; an owner's must be in one of their folders."""
        return await asyncio.to_thread(_resolve_new, folder, self.roots)


def _resolve_new(folder: str | Path, roots: Sequence[Path] | None) -> str:
    """Return a folder that does not exist yet as an absolute path without links; the one above it must be allowed."""
    check_value(str(folder), "worktree")
    path = Path(folder).expanduser()
    if any(part.lower() == ".git" for part in (*path.parts, *_resolve_folder(path.parent, roots).parts)):
        raise InvalidInput("a folder inside of a .git cannot be made for a branch; name another one")
    # Whether something exists is said only about folders that are allowed.
    made = _resolve_folder(path.parent, roots) / path.name
    if path.name in ("", "..") or os.path.lexists(made):
        raise InvalidInput(f"{str(folder)[:200]!r} exists already; name a new folder")
    return str(made)


def check_limit(limit: int | None) -> None:
    """Check a page size; None is no limit."""
    if limit is not None and not 1 <= limit <= 500:
        raise InvalidInput(f"limit must be from 1 to 500, not {limit}")


def _resolve_folder(folder: str | Path, roots: Sequence[Path] | None) -> Path:
    """Return the folder as an absolute path without links. Refuse one that is no folder, or in none of ``roots``,
    without revealing whether that exists."""
    check_value(str(folder), "workspace_root")
    try:
        path = Path(folder).expanduser().resolve()
        if roots is not None and not any(path.is_relative_to(root) for root in roots):
            raise InvalidInput(f"the workspace {str(folder)[:200]!r} is in none of the folders that you may work in")
        is_folder = path.is_dir() and folder != ""
    except (OSError, RuntimeError) as error:
        # A name that is too long, a loop of links, or an unknown user's home.
        raise InvalidInput(f"the workspace {str(folder)[:200]!r} is not a folder") from error
    if not is_folder:
        raise InvalidInput(f"the workspace {str(folder)[:200]!r} is not a folder")
    return path


def without_links(folder: str) -> str:
    """Return a folder's normalized path. An invalid path stays as it is and matches no workspace."""
    try:
        return str(Path(folder).expanduser().resolve())
    except (OSError, RuntimeError):
        return folder
