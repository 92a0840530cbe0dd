"""Who asks: an owner, or whoever sees all there is. A request carries it from the guard to the engine that answers."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

import msgspec
from starlette.requests import HTTPConnection, Request
from starlette.types import Scope

from clew.engine import Engine

__all__ = ["ADMINISTRATOR", "IDENTITY", "Authenticate", "Engines", "Owner", "identify", "route_path"]

IDENTITY: Final = "clew.identity"
"""In the scope of a request: who asks. The guard says so, nobody else."""
_MOST_KEPT: Final = 1_000


class Owner(msgspec.Struct, frozen=True):
    """An owner of sessions, and the folders that these may work in, or below."""

    name: str
    roots: tuple[str, ...] = ()


ADMINISTRATOR: Final = Owner("")
"""Whoever has the server's own token. No owner has an empty name."""

Authenticate: TypeAlias = Callable[[HTTPConnection], "Owner | str | Awaitable[Owner | str | None] | None"]
"""A host's own way to know who asks: the owner, or None for nobody."""


async def identify(authenticate: Authenticate, scope: Scope) -> Owner | None:
    """Who asks. Raises what the host's own raises, and ``TypeError`` for what is neither an owner nor nobody."""
    found = authenticate(HTTPConnection(scope))
    owner = await found if inspect.isawaitable(found) else found
    if owner is None or owner is ADMINISTRATOR:
        return owner
    named: object = Owner(owner) if isinstance(owner, str) else owner
    if isinstance(named, Owner) and named.name:
        return Owner(named.name, tuple(named.roots))
    raise TypeError(f"authenticate gave {owner!r:.200}: give the name of an owner, an Owner, or None for nobody")


def route_path(scope: Scope) -> str:
    """The path below where the app is mounted."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    below = path.removeprefix(root)
    return below if root and path.startswith(root) and below[:1] in ("", "/") else path


class Engines:
    """The engine that answers a request: the whole one, or that of its owner. Few are kept, each is cheap to make."""

    def __init__(self, whole: Engine) -> None:
        self.whole = whole
        self._scoped: dict[Owner, Engine] = {}

    def of(self, request: Request) -> Engine:
        owner = self.owner_of(request)
        if owner is None:
            return self.whole
        if owner not in self._scoped:
            if len(self._scoped) >= _MOST_KEPT:
                del self._scoped[next(iter(self._scoped))]
            self._scoped[owner] = self.whole.scoped(owner.name, roots=owner.roots)
        return self._scoped[owner]

    def owner_of(self, request: Request) -> Owner | None:
        """None for whoever sees all; routes that anybody may ask for see nothing of a session."""
        owner: Owner = request.scope.get(IDENTITY, ADMINISTRATOR)
        # By identity: whatever a host calls an owner, it is none of its own making.
        return None if owner is ADMINISTRATOR else owner
