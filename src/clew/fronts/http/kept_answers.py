"""A cache of encoded responses, valid for as long as the store reports no relevant change.

Clients that watch a page of messages, or the list, request it again and again. Bounded by bytes: the least recently
used entry is evicted first. Running state is not in the store, so it is compared for each list.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request

from clew.fronts.operations import Operation
from clew.ids import is_session_id
from clew.session.api import Engine

__all__ = ["KeptAnswers", "Place"]

MAX_BYTES: Final = 16 << 20
_MAX_ONE: Final = 1 << 20


class Place(msgspec.Struct, frozen=True):
    """The key of a response, and the version of its data, read before the data."""

    session_id: str | None
    query: bytes
    version: Hashable


class _Kept(msgspec.Struct, frozen=True):
    version: Hashable
    body: bytes
    listed: tuple[str, ...]
    doing: tuple[Any, ...]


class KeptAnswers:
    """The cache of one server."""

    def __init__(self, engine: Engine, max_bytes: int = MAX_BYTES) -> None:
        self._engine = engine
        self._most = max_bytes
        self._answers: dict[tuple[str | None, bytes], _Kept] = {}
        self.bytes = 0

    def place(self, request: Request, operation: Operation) -> Place | None:
        """Return the cache key of a request; None if its response is not cached or the store reports no version."""
        query = request.scope["query_string"]
        if operation.name == "messages":
            session_id = request.path_params["id"]
            if not is_session_id(session_id):
                # Only the store can resolve an alias.
                return None
        elif operation.name == "list_sessions" and "workspace" not in request.query_params:
            # Only the file system knows all paths of a folder.
            session_id = None
        else:
            return None
        version = self._engine.store.version(session_id)
        return None if version is None else Place(session_id, query, version)

    def find(self, place: Place) -> bytes | None:
        key = place.session_id, place.query
        kept = self._answers.get(key)
        if kept is None or kept.version != place.version or self._doing(kept.listed) != kept.doing:
            return None
        self._answers[key] = self._answers.pop(key)
        return kept.body

    def keep(self, place: Place, value: Any, body: bytes) -> None:
        """Store the response to the facade's result."""
        listed: tuple[str, ...] = ()
        if place.session_id is None:
            if value.unsettled is None or value.unsettled:
                # Unsettled sessions show more than their rows.
                return
            listed = tuple(session.id for session in value.sessions)
        self._drop((place.session_id, place.query))
        if len(body) > min(_MAX_ONE, self._most):
            return
        self._answers[place.session_id, place.query] = _Kept(place.version, body, listed, self._doing(listed))
        self.bytes += _size_of(place.query, body, listed)
        while self.bytes > self._most:
            self._drop(next(iter(self._answers)))

    def _drop(self, key: tuple[str | None, bytes]) -> None:
        kept = self._answers.pop(key, None)
        if kept is not None:
            self.bytes -= _size_of(key[1], kept.body, kept.listed)

    def _doing(self, listed: Sequence[str]) -> tuple[Any, ...]:
        return tuple(self._engine.known_statuses(listed).values())


def _size_of(query: bytes, body: bytes, listed: Sequence[str]) -> int:
    return len(query) + len(body) + 200 * len(listed) + 1_000
