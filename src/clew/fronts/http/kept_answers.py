"""Answers kept as they were sent, for as long as the store says that nothing they tell has changed.

Whoever looks at a page of messages, or at the list, asks for the same again and again. Bounded by bytes: the answer
that was used longest ago goes first. What is running now is no matter of the store's, so it is held against each list.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request

from clew.engine import Engine
from clew.fronts.operations import Operation
from clew.ids import is_session_id

__all__ = ["KeptAnswers", "Place"]

MOST_BYTES: Final = 16 << 20
_MOST_ONE: Final = 1 << 20


class Place(msgspec.Struct, frozen=True):
    """What an answer is kept under, and the version of what it tells, taken before that is read."""

    session_id: str | None
    query: bytes
    version: Hashable


class _Kept(msgspec.Struct, frozen=True):
    version: Hashable
    body: bytes
    listed: tuple[str, ...]
    doing: tuple[Any, ...]


class KeptAnswers:
    """Those of one server."""

    def __init__(self, engine: Engine, most_bytes: int = MOST_BYTES) -> None:
        self._engine = engine
        self._most = most_bytes
        self._answers: dict[tuple[str | None, bytes], _Kept] = {}
        self.bytes = 0

    def place(self, request: Request, operation: Operation) -> Place | None:
        """Where the answer to a request belongs; None when it is none that is kept, or nobody knows what is stored."""
        query = request.scope["query_string"]
        if operation.name == "messages":
            session_id = request.path_params["id"]
            if not is_session_id(session_id):
                # An alias: which session it means the store says.
                return None
        elif operation.name == "list_sessions" and "workspace" not in request.query_params:
            # By which names a folder can be reached, the disk says.
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
        """Keep the answer to what the facade said."""
        listed: tuple[str, ...] = ()
        if place.session_id is None:
            if value.unsettled is None or value.unsettled:
                # What is open is shown by more than its row.
                return
            listed = tuple(session.id for session in value.sessions)
        self._drop((place.session_id, place.query))
        if len(body) > min(_MOST_ONE, self._most):
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
