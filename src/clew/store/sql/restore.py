"""Restores rows from facts, to rebuild a store from its event log."""

from __future__ import annotations

from typing import Any, Never

from clew.convert import convert
from clew.errors import RowUndecodable
from clew.store.facts import Fact
from clew.store.sql import rows
from clew.store.sql.apply import set_hidden
from clew.store.sql.statements import Statements
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import hidden_if_cancelled
from clew.transcript.model_call import ModelCall
from clew.transcript.projection import Hidden
from clew.transcript.session import Session
from clew.transcript.turn import Step, Turn
from clew.transcript.turn_state import OPEN

__all__ = ["restore"]


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
