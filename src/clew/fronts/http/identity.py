"""The identity of the client: an owner, or the administrator. The guard stores it in the request for later lookup."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from clew.session.api import Engine

__all__ = ["ADMINISTRATOR", "IDENTITY", "Authenticate", "Engines", "Owner", "identify", "route_path"]

IDENTITY: Final = "clew.identity"
"""Scope key: the owner of the request. Set only by the guard."""
_MAX_CACHED_ENGINES: Final = 1_000


class Owner(msgspec.Struct, frozen=True):
    """An owner of sessions, and the folders at or below which their sessions may work."""

    name: str
    roots: tuple[str, ...] = ()


ADMINISTRATOR: Final = Owner("")
"""The holder of the server's own token. No owner has an empty name."""

Authenticate: TypeAlias = Callable[[HTTPConnection], "Owner | str | Awaitable[Owner | str | None] | None"]
"""A host's own authentication: returns the owner, or None to reject the request."""


async def identify(authenticate: Authenticate, scope: Scope) -> Owner | None:
    """Return the owner of a request. Raises what ``authenticate`` raises, and ``TypeError`` for an invalid result."""
    result = authenticate(HTTPConnection(scope))
    owner = await result if inspect.isawaitable(result) else result
    if owner is None or owner is ADMINISTRATOR:
        return owner
    converted: object = Owner(owner) if isinstance(owner, str) else owner
    if isinstance(converted, Owner) and converted.name:
        return Owner(converted.name, tuple(converted.roots))
    raise TypeError(f"authenticate returned {owner!r:.200}; return an owner's name, an Owner, or None to reject")


def route_path(scope: Scope) -> str:
    """Return the path below the app's mount point."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    rest = path.removeprefix(root)
    return rest if root and path.startswith(root) and rest[:1] in ("", "/") else path


class Engines:
    """The engine for a request: unscoped, or scoped to its owner. A bounded number of engines is cached."""

    def __init__(self, whole: Engine) -> None:
        self.whole = whole
        self._scoped: dict[Owner, Engine] = {}

    def of(self, request: Request) -> Engine:
        owner = self.owner_of(request)
        if owner is None:
            return self.whole
        if owner not in self._scoped:
            if len(self._scoped) >= _MAX_CACHED_ENGINES:
                del self._scoped[next(iter(self._scoped))]
            self._scoped[owner] = self.whole.scoped(owner.name, roots=owner.roots)
        return self._scoped[owner]

    def owner_of(self, request: Request) -> Owner | None:
        """Return the owner of a request; None for the administrator and on public routes, which read no session."""
        owner: Owner = request.scope.get(IDENTITY, ADMINISTRATOR)
        # Compare by identity: no owner from a host can pose as the administrator.
        return None if owner is ADMINISTRATOR else owner
