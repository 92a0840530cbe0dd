"""Facts back into rows: how a log becomes a store again. Each kind of fact writes all of what it tells of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from clew.store.facts import Fact
from clew.store.sql import rows
from clew.store.sql.statements import Statements
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.session import Session
from clew.transcript.turn import Step, Turn
from clew.transcript.turn_state import OPEN

__all__ = ["restore"]


def restore(sql: Statements, fact: Fact) -> None:
    """Write what a fact tells of into a store that holds what the facts before it told."""
    _RESTORE[fact.type](sql, fact.stream_id, fact.data)


def _session(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    session = msgspec.convert(data, Session)
    sql.run("restore_session", rows.session_params(session))
    sql.run("restore_epoch", {"id": id_, "epoch": data["epoch"]})


def _forget(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    sql.run("delete_session", {"id": id_})


def _restated(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    _forget(sql, id_, data)
    _session(sql, id_, data)


def _message(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    row = MessageRow(data["id"], id_, data["role"], data["created_at"], data["updated_at"], data["metadata"])
    sql.run("restore_message", rows.message_params(row))
    if data["seal"] is not None:
        sql.run("put_seal", {"session_id": id_, "message_id": row.id, "digest": data["seal"]})


def _hidden(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    groups: dict[tuple[Any, Any] | None, list[str]] = {}
    for message_id, hidden in data["hidden"].items():
        groups.setdefault(None if hidden is None else (hidden["at"], hidden["by"]), []).append(message_id)
    for key, ids in groups.items():
        params = {"session_id": id_, "ids": rows.encode(ids)}
        if key is None:
            sql.run("show_messages", params)
        else:
            sql.run("hide_messages", {**params, "at": key[0], "by": key[1]})


def _part(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    part = PartRow(data["id"], data["index"], data["data"], data["created_at"], data["updated_at"])
    sql.run("restore_part", rows.part_params(part, data["message_id"], id_))


def _turn(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    turn = msgspec.convert(data, Turn)
    sql.run("restore_turn", rows.turn_params(turn))
    name = "restore_open_turn" if turn.status in OPEN else "restore_settled_turn"
    sql.run(name, {"session_id": id_, "id": turn.id})
    sql.run("delete_links", {"turn_id": turn.id})
    for position, message_id in enumerate(data["messages"]):
        sql.run("restore_link", {"turn_id": turn.id, "position": position, "message_id": message_id})


def _step(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    sql.run("restore_step", rows.step_params(msgspec.convert(data, Step)))


def _move(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    sql.run("restore_move", data)
    sql.run("restore_head", {"session_id": id_, "to_turn_id": data["to_turn_id"]})


def _pruned(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    for one in data["pruned"]:
        sql.run("restore_pruned", {**one, "session_id": id_})


def _queued(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    sql.run("restore_queued", {**data, "session_id": id_})


def _dequeued(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    sql.run("dequeue", data)


def _blob(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    sql.run("restore_blob_link", {"session_id": id_, **data})


def _prompt(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    sql.run("put_prompt", data)


def _rules(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    rules = rows.encode(data["rules"])
    params = {"project": data["project"], "rules_json": rules, "updated_at": data["updated_at"]}
    sql.run("put_project_rules", params)


def _nothing(sql: Statements, id_: str, data: dict[str, Any]) -> None:
    """It is about the log itself."""


_RESTORE: dict[str, Callable[[Statements, str, dict[str, Any]], None]] = {
    "session.created": _session,
    "session.changed": _session,
    "session.restated": _restated,
    "session.deleted": _forget,
    "message.added": _message,
    "message.changed": _message,
    "message.hidden": _hidden,
    "message.queued": _queued,
    "message.dequeued": _dequeued,
    "part.settled": _part,
    "turn.opened": _turn,
    "turn.changed": _turn,
    "step.ended": _step,
    "head.moved": _move,
    "output.pruned": _pruned,
    "blob.linked": _blob,
    "prompt.kept": _prompt,
    "rules.replaced": _rules,
    "log.started": _nothing,
    "log.stopped": _nothing,
}
