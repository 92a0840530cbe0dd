"""The files that a session's line has touched, by page. Only reads."""

from __future__ import annotations

import asyncio

import msgspec

from clew.compaction.files import TouchedFile, touched_files
from clew.session.history.lookup import get_turn_of
from clew.store.base import Store
from clew.transcript.session import Session

__all__ = ["FileList", "load_files"]


class FileList(msgspec.Struct, frozen=True):
    """Files that the conversation has read or changed, the most recently touched first.

    Of all turns of the line, or of one page of them: then ``count`` and the actions are those of this page, and
    ``next_cursor`` leads to the page before it. A file touched on several pages is listed on each.
    """

    files: list[TouchedFile]
    next_cursor: str | None = None


async def load_files(store: Store, session: Session, limit: int | None, through: str | None) -> FileList:
    """Return the files of the line, of its last ``limit`` turns, or of as many up to the turn ``through``.

    A cursor follows the line of the first page, even after the head has moved.
    """
    if through is not None:
        await get_turn_of(store, session.id, through)
    line = await store.load_line(session.id, through=through, turns=limit, keep_damaged=True)
    files = await asyncio.to_thread(touched_files, line.turns, session.workspace_root)
    return FileList(files, None if line.complete else line.turns[0].turn.parent_turn_id)
