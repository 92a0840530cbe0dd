"""The options of a SQLite store."""

from __future__ import annotations

import msgspec

__all__ = ["SqliteOptions"]


class SqliteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a store. ``read_only`` takes no owner lock and never writes."""

    read_only: bool = False
    every_commit_full: bool = False
    window_ms: float = 0.0
    gap_ms: float = 1.0
    lock_wait_ms: float = 60_000.0
    reader_threads: int = 2
    max_pages: int | None = None
    checkpoints: bool = True
    event_log: bool = False
