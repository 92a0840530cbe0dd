"""Deletion of a session in SQL, in portions: the pages that a statement changes are held in memory until it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from clew.store.sql.statements import Statements

__all__ = ["begin_deletion", "delete_portion"]

_FIRST: Final = (
    "delete_queued_of_session",
    "delete_schedules_of_session",
    "delete_webhooks_of_session",
    "detach_calls_of_session",
    "begin_deletion",
)
_MAX_ROWS: Final = {
    "delete_unnamed_blobs": 4,
    "delete_parts_of_session": 500,
    "delete_messages_of_session": 500,
    "delete_turns_of_session": 500,
    "delete_moves_of_session": 500,
}
"""The statements that delete the rows of a session before its own, and the number of rows that each deletes at once."""


def begin_deletion(sql: Statements, session_id: str) -> None:
    """Remove what other tables would still find of the session, and mark it as deleted."""
    for name in _FIRST:
        sql.run(name, {"id": session_id})


def delete_portion(sql: Statements, session_id: str, unindex: Callable[[str], bool]) -> bool:
    """Delete some rows of the session, its own with the last of them; return whether there are more."""
    if unindex(session_id):
        return True
    for name, limit in _MAX_ROWS.items():
        if sql.run(name, {"id": session_id}) >= limit:
            return True
    sql.run("delete_session", {"id": session_id})
    sql.run("delete_unnamed_prompts", {})
    sql.run("delete_facts_of_prompts", {})
    return False
