"""Bulk export: the rows of many sessions, read from a store a few messages at a time. Only reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from clew.interop.canonical import RowSink, add_message, session_row
from clew.interop.redact import Redaction
from clew.long_work import run_long
from clew.store.base import Store
from clew.transcript.message import MessageRow
from clew.transcript.session import Session

__all__ = ["BulkCounts", "BulkQuery", "export_rows"]

_MESSAGES_AT_ONCE: Final = 50


class BulkQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions to export, archived ones and those of subagents included. ``since`` and ``until`` bound the last
    change."""

    owner: str | None = None
    workspace: str | None = None
    agent: str | None = None
    since: int = 0
    until: int | None = None

    def matches(self, session: Session) -> bool:
        return (
            self.owner in (None, session.owner)
            and self.workspace in (None, session.workspace_root)
            and self.agent in (None, session.agent)
            and self.since <= session.updated_at
            and (self.until is None or session.updated_at < self.until)
        )


class BulkCounts(msgspec.Struct):
    """The number of rows written so far."""

    sessions: int = 0
    messages: int = 0
    parts: int = 0


async def export_rows(
    store: Store,
    query: BulkQuery,
    sink: RowSink,
    redaction: Redaction | None,
    progress: Callable[[int, int], None] = lambda number, of: None,
) -> BulkCounts:
    """Write the rows of every matching session, oldest first; ``progress`` is called after each session.

    The sessions are those that exist at the beginning. One that changes meanwhile is exported as it is read.
    """
    ids = sorted(await store.session_ids())
    counts = BulkCounts()
    for number, session_id in enumerate(ids, start=1):
        session = await store.find_session(session_id)
        if session is not None and query.matches(session):
            await _export_session(store, session, sink, redaction, counts)
            await store.release(session_id)
        progress(number, len(ids))
    return counts


async def _export_session(
    store: Store, session: Session, sink: RowSink, redaction: Redaction | None, counts: BulkCounts
) -> None:
    sink.add("session", session_row(session if redaction is None else redaction.session(session)))
    counts.sessions += 1
    ids = await store.load_message_ids(session.id)
    for start in range(0, len(ids), _MESSAGES_AT_ONCE):
        among = ids[start : start + _MESSAGES_AT_ONCE]
        rows = await store.load_messages(session.id, keep_damaged=True, among=among)
        await run_long(_add_messages, rows, sink, redaction)
        counts.messages += len(rows)
        counts.parts += sum(len(row.parts) for row in rows)


def _add_messages(rows: Sequence[MessageRow], sink: RowSink, redaction: Redaction | None) -> None:
    for stored in rows:
        row = stored if redaction is None else redaction.message(stored)
        add_message(sink, row, row.parts)
