"""The files a conversation has touched. Only reads."""

from __future__ import annotations

import asyncio

from clew.compaction.files import TouchedFile, touched_files
from clew.store.base import Store, get_session

__all__ = ["load_files"]


async def load_files(store: Store, session_id: str) -> list[TouchedFile]:
    """The files that calls on the line read and changed, those a compaction summarised included."""
    session = await get_session(store, session_id)
    line = await store.load_line(session_id, keep_damaged=True)
    return await asyncio.to_thread(touched_files, line.turns, session.workspace_root)
