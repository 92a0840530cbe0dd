"""Copying a line in SQL: applying a :class:`CopyLine` in the open transaction.

The turns of a run are found by walking up from its last one; they never leave the database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from clew.errors import InternalError, RowUndecodable
from clew.store.copied_line import CopiedRun
from clew.store.sql import rows
from clew.store.sql.line_reader import LOST_MESSAGES
from clew.store.sql.statements import Statements, must
from clew.store.unit import CopyLine
from clew.transcript.damage import seal_of
from clew.transcript.turn import Turn, with_parent
from clew.transcript.turn_state import OPEN, check_transition

__all__ = ["copy_line"]


def copy_line(
    sql: Statements, session_id: str, write: CopyLine, minted: str, note: Callable[[Iterable[str]], None]
) -> None:
    """Fill a session with a line of another. ``minted`` is the id from which ids of parts are derived.

    ``note`` receives the ids of the copied messages, which are fetched only if it iterates over them.
    """
    params = {"session_id": session_id, "source": write.source_session_id}
    for name in ("make_copied", "make_copied_turns", "empty_copied"):
        sql.run(name, {})
    messages = [
        {**message._asdict(), "turn_id": turn.id, "position": position, "origin_turn_id": turn.origin_turn_id}
        for turn, copies in ((entry.turn, entry.messages) for entry in write.turns)
        for position, message in enumerate(copies)
    ]
    if len({message["source_id"] for message in messages}) < len(messages):
        raise InternalError("a message would be copied twice", session_id=write.source_session_id)
    count = sql.many("add_copied", messages) if messages else 0
    turns: list[Turn] = []
    runs = {run.above: run for run in write.runs}
    parent = write.below
    for entry in write.turns:
        turn = entry.turn
        if run := runs.pop(turn.id, None):
            parent, found = _copy_run(sql, params, run, parent)
            count += found
        check_transition(None, turn.status)
        if turn.status in OPEN or turn.session_id != session_id:
            raise InternalError("a copied turn is open, or of another session", turn_id=turn.id)
        parent = with_parent(turn, parent)
        turns.append(parent)
    if run := runs.pop(None, None):
        parent, found = _copy_run(sql, params, run, parent)
        count += found
    if runs:
        raise InternalError(
            "a run is to be inserted above a turn that is not copied", session_id=write.source_session_id
        )
    inserted = sum(message["inserted"] for message in messages)
    matched = sql.first("count_inserted", params) if inserted else (0,)
    if matched != (inserted,) or sql.run("copy_messages", params) != count - inserted:
        raise InternalError("a copy names a message that is not in its session", session_id=write.source_session_id)
    sql.run("copy_parts", {"minted": minted, **params})
    sql.run("copy_seals", params)
    _seal_copies(sql, session_id)
    sql.many("insert_turn", (rows.turn_params(turn) for turn in turns))
    for name in ("copy_links", "copy_steps", "copy_pruned", "copy_blob_links"):
        sql.run(name, params)
    if write.is_portion:
        must(sql, "renew_copy", {"id": session_id})
    else:
        sql.run("sum_session", params)
    note(_copied_ids(sql))
    sql.run("empty_copied", {})


def _copied_ids(sql: Statements) -> Iterator[str]:
    for (message_id,) in sql.rows("copied_ids", {}):
        yield message_id


def _copy_run(sql: Statements, params: Mapping[str, Any], run: CopiedRun, above: Turn | None) -> tuple[Turn, int]:
    """Insert the turns of a run below ``above``, and add its messages to those to copy.

    Return the last turn, as the parent of the next one, and the number of messages.
    """
    first = with_parent(
        Turn(id=run.turn, session_id=params["session_id"], parent_turn_id=None, created_at=run.now), above
    )
    run_params = {
        **params,
        **msgspec.structs.asdict(run),
        "parent": first.parent_turn_id,
        "compaction": first.compaction_turn_id,
        "depth": first.depth,
    }
    sql.run("empty_copied_turns", {})
    if sql.run("add_copied_turns", run_params) != run.count or sql.run("copy_turns", run_params) != run.count:
        raise InternalError("these turns cannot be copied in bulk", turn_id=run.through)
    held, found = sql.first("count_copied", {}), sql.run("add_copied_run", run_params)
    if held != (found,):
        raise RowUndecodable(LOST_MESSAGES, session_id=params["source"], turn_id=run.through)
    return run.last(above, params["session_id"]), found


def _seal_copies(sql: Statements, session_id: str) -> None:
    """Seal the copies of messages that another program may still change: the copies do not change any more."""
    for (message_id,) in sql.rows("copied_growing", {}):
        found = sorted(sql.rows("load_parts_by_message", {"ids": rows.encode([message_id])}), key=lambda row: row[2])
        digest = seal_of(rows.to_part(row, keep_damaged=True).data for row in found)
        sql.run("put_seal", {"session_id": session_id, "message_id": message_id, "digest": digest})
