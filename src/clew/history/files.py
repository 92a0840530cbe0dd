"""The files a session's line has touched, a stretch of turns at a time. Only reads."""

from __future__ import annotations

import asyncio

import msgspec

from clew.compaction.files import TouchedFile, touched_files
from clew.history.lookup import get_turn_of
from clew.store.base import Store
from clew.transcript.session import Session

__all__ = ["FileList", "load_files"]


class FileList(msgspec.Struct, frozen=True):
    """Files that the conversation has read or changed, the one touched last first.

    Of all turns of the line, or of a stretch of them: ``count`` and what was done to a file are of that stretch alone,
    and ``next_cursor`` leads to the one before it. A file that was touched in several is told of in each.
    """

    files: list[TouchedFile]
    next_cursor: str | None = None


async def load_files(store: Store, session: Session, limit: int | None, through: str | None) -> FileList:
    """The files of the line, of its last ``limit`` turns, or of as many up to the turn ``through``.

    A cursor follows the line of its first page, also when the head has moved since.
    """
    if through is not None:
        await get_turn_of(store, session.id, through)
    line = await store.load_line(session.id, through=through, turns=limit, keep_damaged=True)
    files = await asyncio.to_thread(touched_files, line.turns, session.workspace_root)
    return FileList(files, None if line.complete else line.turns[0].turn.parent_turn_id)
