"""Listing sessions: the query, the page it returns, and the cursor of the next page."""

from __future__ import annotations

from typing import Literal

import msgspec

from clew.transcript.session import Session

__all__ = ["Cursor", "SessionPage", "SessionQuery", "ShownPage"]


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The position where a page ended: sessions are listed by (updated_at, id), newest first."""

    updated_at: int
    id: str


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions to list. Archived, ephemeral and subagent sessions are left out unless requested; with ``pinned``
    all that are not pinned are."""

    limit: int = 50
    cursor: Cursor | None = None
    agent: str | None = None
    workspace: str | None = None
    parent: str | None = None
    title: str | None = None
    kind: Literal["chat", "subagent", "any"] = "chat"
    archived: bool = False
    ephemeral: bool = False
    pinned: bool = False
    owner: str | None = None


class SessionPage(msgspec.Struct, frozen=True):
    """A page of sessions as a store returns it, with the cursor as a value; ``next`` is None on the last one."""

    sessions: tuple[Session, ...]
    next: Cursor | None


class ShownPage(msgspec.Struct, frozen=True):
    """A page of sessions with their spend, and which of them have something ``unsettled`` or ``failed``."""

    sessions: tuple[Session, ...]
    next: Cursor | None
    unsettled: frozenset[str]
    failed: frozenset[str] = frozenset()
