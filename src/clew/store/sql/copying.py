"""Copying a line in SQL: applying a :class:`CopyLine` in the open transaction.

The turns of a run are found by walking up from its last one; they never leave the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from clew.errors import InternalError, RowUndecodable
from clew.store.copies import PlacedRun, plan_copy
from clew.store.sql import rows
from clew.store.sql.line_reader import LOST_MESSAGES
from clew.store.sql.statements import Statements
from clew.store.unit import CopyLine
from clew.transcript.damage import seal_of

__all__ = ["copy_line"]


def copy_line(
    sql: Statements, session_id: str, write: CopyLine, minted: str, note: Callable[[Iterable[str]], None]
) -> None:
    """Fill a session with a line of another. ``minted`` is the id from which ids of parts are derived.

    ``note`` receives the ids of the copied messages, which are fetched only if it iterates over them.
    """
    plan = plan_copy(session_id, write)
    params = {"session_id": session_id, "source": write.source_session_id}
    for name in ("make_copied", "make_copied_turns", "empty_copied"):
        sql.run(name, {})
    count = sql.many("add_copied", (copied._asdict() for copied in plan.messages)) if plan.messages else 0
    count += sum(_copy_run(sql, params, placed) for placed in plan.runs)
    inserted = sum(copied.inserted for copied in plan.messages)
    found = sql.first("count_inserted", params) if inserted else (0,)
    if found != (inserted,) or sql.run("copy_messages", params) != count - inserted:
        raise InternalError("a copy names a message that is not in its session", session_id=write.source_session_id)
    sql.run("copy_parts", {"minted": minted, **params})
    sql.run("copy_seals", params)
    _seal_copies(sql, session_id)
    sql.many("insert_turn", (rows.turn_params(turn) for turn in plan.turns))
    for name in ("copy_links", "copy_steps", "copy_pruned", "copy_blob_links", "sum_session"):
        sql.run(name, params)
    note(_copied_ids(sql))
    sql.run("empty_copied", {})


def _copied_ids(sql: Statements) -> Iterator[str]:
    for (message_id,) in sql.rows("copied_ids", {}):
        yield message_id


def _copy_run(sql: Statements, params: Mapping[str, Any], placed: PlacedRun) -> int:
    """Insert the turns of a run, and add its messages to those to copy; return how many there are."""
    run, parent = placed
    parent_ids = (parent.id, parent.compaction_turn_id) if parent is not None else (None, None)
    run_params = {
        **params,
        **msgspec.structs.asdict(run),
        "parent": parent_ids[0],
        "compaction": parent_ids[1],
        "depth": placed.depth,
    }
    sql.run("empty_copied_turns", {})
    if sql.run("add_copied_turns", run_params) != run.count or sql.run("copy_turns", run_params) != run.count:
        raise InternalError("these turns cannot be copied in bulk", turn_id=run.through)
    held, found = sql.first("count_copied", {}), sql.run("add_copied_run", run_params)
    if held != (found,):
        raise RowUndecodable(LOST_MESSAGES, session_id=params["source"], turn_id=run.through)
    return found


def _seal_copies(sql: Statements, session_id: str) -> None:
    """Seal the copies of messages that another program may still change: the copies do not change any more."""
    for (message_id,) in sql.rows("copied_growing", {}):
        found = sorted(sql.rows("load_parts_by_message", {"ids": rows.encode([message_id])}), key=lambda row: row[2])
        digest = seal_of(rows.to_part(row, keep_damaged=True).data for row in found)
        sql.run("put_seal", {"session_id": session_id, "message_id": message_id, "digest": digest})
