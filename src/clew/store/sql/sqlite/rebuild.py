"""Rebuilding a store from its event log, and comparing it with the original.

Both are read in one read transaction of the original, so it may be in use meanwhile. The log has no bytes of blobs:
those are copied from the original, as are the rows of the log itself, the events ledger and the triggers.
"""

from __future__ import annotations

import contextlib
import heapq
import secrets
import sqlite3
import tomllib
from collections.abc import Iterator
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, Never, TypeAlias

import orjson

from clew.convert import convert
from clew.errors import InvalidInput, RowUndecodable, StoreUnavailable
from clew.store.base import Damage, Rebuilt
from clew.store.facts import Fact
from clew.store.owner import refuse_network_file_system
from clew.store.sql import rows
from clew.store.sql.apply import set_hidden
from clew.store.sql.log import is_log_complete, to_fact
from clew.store.sql.sqlite.connection import QUERIES, SqliteStatements, connect, protect, remove_files, translate
from clew.store.sql.sqlite.migrate import migrate
from clew.store.sql.statements import Statements, read_sql
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import hidden_if_cancelled
from clew.transcript.model_call import ModelCall
from clew.transcript.part import is_growing
from clew.transcript.projection import Hidden
from clew.transcript.session import Session
from clew.transcript.turn import Step, Turn
from clew.transcript.turn_state import OPEN

__all__ = ["differences", "rebuild", "restore"]

TABLES: Final = tomllib.loads(read_sql("sqlite/rebuild.toml"))
_COPIED_TABLES: Final = ("ledger_events", "schedules", "webhooks", "adopted_messages")
"""Not facts of a session: a separate ledger, configuration, and messages that other programs may still change."""
_FACT: Final = ("stream_id", "seq", "at", "type", "data_json", "n")
_BLOB: Final = ("sha256", "media_type", "size", "data", "created_at")
_MAX_DIFFERENCES: Final = 100

Row: TypeAlias = tuple[Any, ...]


def rebuild(source: Path, target: Path) -> Rebuilt:
    """Create ``target`` from the log of ``source``, and report the differences."""
    if target.exists():
        raise InvalidInput(f"{target} already exists; choose a new file")
    refuse_network_file_system(target)
    try:
        with contextlib.closing(connect(source, writer=False)) as original:
            original.execute("BEGIN DEFERRED")
            if not is_log_complete(SqliteStatements(original)):
                raise InvalidInput(
                    f"{source} has no event log; set event_log = true in your settings and open it once for writing"
                )
            return _rebuild(original, target)
    except (sqlite3.Error, OSError) as error:
        if isinstance(error, sqlite3.IntegrityError):
            raise StoreUnavailable(
                f"the event log of {source} is inconsistent ({error}); its tables are not affected: "
                "run `clew check`, and open the store once without event_log, then with it, to start a new log"
            ) from error
        if isinstance(error, OSError):
            raise StoreUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
        raise translate(error, target) from error


def _rebuild(original: sqlite3.Connection, target: Path) -> Rebuilt:
    # Under a temporary name until it is complete: an unfinished store would look like an empty one.
    unfinished = target.with_name(f"{target.name}.{secrets.token_hex(4)}.unfinished")
    with contextlib.ExitStack() as undo:
        undo.callback(remove_files, unfinished)
        protect(unfinished)
        with contextlib.closing(connect(unfinished, writer=True)) as copy:
            migrate(copy, unfinished)
            copy.execute("BEGIN IMMEDIATE")
            # Facts are in chronological order, in which a turn may refer to a later message.
            copy.execute("PRAGMA defer_foreign_keys = ON")
            count = _restore_all(original, copy)
            copy.execute(QUERIES["set_sealed_since"], original.execute(QUERIES["get_store_mark"]).fetchone()[1:])
            copy.execute("COMMIT")
            found = tuple(islice(differences(original, copy), _MAX_DIFFERENCES))
            (sessions,) = copy.execute("SELECT count(*) FROM chat_sessions").fetchone()
        if target.exists():
            raise InvalidInput(f"{target} already exists; choose a new file")
        # The WAL of an earlier store with this name would be applied to this one.
        remove_files(target)
        unfinished.rename(target)
        undo.pop_all()
        return Rebuilt(sessions, count, found)


def _restore_all(original: sqlite3.Connection, copy: sqlite3.Connection) -> int:
    sql, count = SqliteStatements(copy), 0
    for row in original.execute(QUERIES["load_all_facts"]):
        fact = to_fact(row)
        restore(sql, fact)
        if fact.type == "blob.linked":
            blob = original.execute(QUERIES["get_blob_row"], fact.data).fetchone()
            if blob is not None:
                sql.run("put_blob", dict(zip(_BLOB, blob, strict=True)))
        sql.run("add_fact", dict(zip(_FACT, row, strict=True)))
        count += 1
    for table in _COPIED_TABLES:
        for row in original.execute(f"SELECT * FROM {table}"):
            copy.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
    return count


def differences(original: sqlite3.Connection, copy: sqlite3.Connection) -> Iterator[Damage]:
    """Yield rows that differ, except for parts that are still growing and sessions that are being copied or deleted:
    those are in no log."""
    in_flow = original.execute(QUERIES["parts_in_flow"])
    parts = {(message_id, index): _decoded(data) for message_id, index, data in in_flow}
    growing = {name for name, data in parts.items() if isinstance(data, dict) and is_growing(data)}
    unfinished = {name for (name,) in original.execute(QUERIES["names_of_unfinished"])}
    for table, key in TABLES["compared"].items():
        # Without the columns that another program has added.
        columns = [row[1] for row in copy.execute(f"PRAGMA table_info({table})")]
        name_of = itemgetter(*(columns.index(name.strip(' "')) for name in key.split(",")))
        wanted = ", ".join(f'"{name}"' for name in columns)
        query = f"SELECT {wanted} FROM {table} ORDER BY {key}"
        # Merge both tables in key order.
        both = heapq.merge(
            ((name_of(row), 0, row) for row in original.execute(query) if unfinished.isdisjoint(row)),
            ((name_of(row), 1, row) for row in copy.execute(query)),
            key=itemgetter(0),
        )
        for name, found in groupby(both, key=itemgetter(0)):
            rows = {side: row for _, side, row in found}
            one, other = rows.get(0), rows.get(1)
            if (table == "chat_parts" and name in growing) or (one and other and _equal(columns, one, other)):
                continue
            what = "is not in the log" if other is None else "is only in the log" if one is None else "differs"
            session = (one or other or ())[columns.index("session_id")] if "session_id" in columns else None
            yield Damage(f"a row of {table} {what}", session, " ".join(map(str, name)) if "," in key else str(name))


def _equal(columns: list[str], one: Row, other: Row) -> bool:
    """Return whether both have the same values; JSON written by another program may be formatted differently."""
    return one == other or all(
        a == b or (column.endswith("_json") and _decoded(a) == _decoded(b) is not None)
        for column, a, b in zip(columns, one, other, strict=True)
    )


def _decoded(text: Any) -> Any:
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return None


def restore(sql: Statements, fact: Fact) -> None:
    """Write the content of a fact into a store to which all earlier facts were restored."""
    id_, data = fact.stream_id, fact.data
    match fact.type:
        case "session.created" | "session.changed" | "session.restated":
            if fact.type == "session.restated":
                sql.run("delete_session", {"id": id_})
            sql.run("restore_session", rows.session_params(convert(data, Session)))
            owner_and_alias = {"owner": data.get("owner"), "alias": data.get("alias")}
            sql.run("restore_epoch", {"id": id_, "epoch": data["epoch"], **owner_and_alias})
        case "session.deleted":
            sql.run("delete_session", {"id": id_})
        case "message.added" | "message.changed":
            metadata = hidden_if_cancelled(data["metadata"])
            row = MessageRow(data["id"], id_, data["role"], data["created_at"], data["updated_at"], metadata)
            sql.run("restore_message", rows.message_params(row))
            if data["seal"] is not None:
                sql.run("put_seal", {"session_id": id_, "message_id": row.id, "digest": data["seal"]})
        case "message.hidden":
            set_hidden(sql, id_, {key: one and Hidden(one["at"], one["by"]) for key, one in data["hidden"].items()})
        case "message.queued":
            sql.run("restore_queued", {**data, "session_id": id_})
        case "message.dequeued":
            sql.run("dequeue", data)
        case "part.settled":
            part = PartRow(data["id"], data["index"], data["data"], data["created_at"], data["updated_at"])
            sql.run("restore_part", rows.part_params(part, data["message_id"], id_))
        case "turn.opened" | "turn.changed":
            _restore_turn(sql, id_, data)
        case "step.ended":
            sql.run("restore_step", rows.step_params(convert(data, Step)))
        case "call.noted":
            sql.run("put_call", rows.call_params(convert(data, ModelCall)))
        case "head.moved":
            sql.run("restore_move", data)
            sql.run("restore_head", {"session_id": id_, "to_turn_id": data["to_turn_id"]})
        case "output.pruned":
            for one in data["pruned"]:
                sql.run("restore_pruned", {**one, "session_id": id_})
        case "blob.linked":
            sql.run("restore_blob_link", {"session_id": id_, **data})
        case "prompt.kept":
            sql.run("put_prompt", data)
        case "rules.replaced":
            sql.run("put_project_rules", {**data, "rules_json": rows.encode(data["rules"])})
        case "log.started" | "log.stopped":
            pass  # concerns only the log itself
        case _:
            raise _unknown(fact.type, fact)


def _unknown(kind: Never, fact: Fact) -> RowUndecodable:
    """Return the error for a fact of an unknown type, which is damage. ``Never`` lets mypy report a missing branch."""
    return RowUndecodable(f"unknown fact type: {kind!r}", stream_id=fact.stream_id, seq=fact.seq)


def _restore_turn(sql: Statements, session_id: str, data: dict[str, Any]) -> None:
    turn = convert(data, Turn)
    sql.run("restore_turn", rows.turn_params(turn))
    name = "restore_open_turn" if turn.status in OPEN else "restore_settled_turn"
    sql.run(name, {"session_id": session_id, "id": turn.id})
    sql.run("delete_links", {"turn_id": turn.id})
    for position, message_id in enumerate(data["messages"]):
        sql.run("restore_link", {"turn_id": turn.id, "position": position, "message_id": message_id})
