"""Which sessions a store is asked to list, and how it answers: a page of them, and where the next one begins."""

from __future__ import annotations

from typing import Literal

import msgspec

from clew.transcript.session import Session

__all__ = ["Cursor", "SessionPage", "SessionQuery", "ShownPage"]


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """Where a page ended: sessions are listed by (updated_at, id), newest first."""

    updated_at: int
    id: str


class SessionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to list. Archived, ephemeral and subagent sessions are left out unless asked for;
    with ``pinned`` all that are not pinned."""

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
    """A page of sessions as a store answers it, with the cursor as a value; ``next`` is None on the last one."""

    sessions: tuple[Session, ...]
    next: Cursor | None


class ShownPage(msgspec.Struct, frozen=True):
    """The same with what each session has spent, which of them have something ``unsettled``, and which ``failed``."""

    sessions: tuple[Session, ...]
    next: Cursor | None
    unsettled: frozenset[str]
    failed: frozenset[str] = frozenset()
