"""Between rows and values: JSON columns in and out, and what happens when one no longer reads.

JSON is stored as text, as it was encoded here, so that any reader of the format can use it. A row that does not
decode raises ``RowUndecodable`` with its ids; where the caller wants to see the rest, a stand-in takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

import msgspec
import orjson

from clew.errors import RowUndecodable
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.pruned import Pruned
from clew.transcript.session import Model, Session
from clew.transcript.turn import HeadMove, Step, Turn, TurnKind
from clew.transcript.turn_state import TurnStatus
from clew.transcript.usage import Usage

__all__ = [
    "ALL",
    "damaged_part",
    "decode",
    "encode",
    "encode_model",
    "message_params",
    "part_params",
    "session_params",
    "step_params",
    "to_message",
    "to_move",
    "to_part",
    "to_pruned",
    "to_session",
    "to_step",
    "to_turn",
    "turn_params",
]

ALL: Final = 2**31
"""A limit for whoever wants all rows."""
_KINDS: Final = frozenset(get_args(TurnKind))
_STATUSES: Final = frozenset(get_args(TurnStatus))

Row = Sequence[Any]
Params = dict[str, Any]


def encode(value: Any) -> str:
    return orjson.dumps(value).decode()


def decode(text: Any, what: str, **ids: object) -> Any:
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise RowUndecodable(f"the {what} is not readable: {error}", **ids) from error


def _object(text: Any, what: str, **ids: object) -> dict[str, Any]:
    value = decode(text, what, **ids)
    if not isinstance(value, dict):
        raise RowUndecodable(f"the {what} is not a JSON object", **ids)
    return value


def encode_model(model: Model) -> str:
    return msgspec.json.encode(model).decode()


def session_params(session: Session) -> Params:
    return {
        "id": session.id,
        "agent": session.agent,
        "workspace_root": session.workspace_root,
        "model_json": encode_model(session.model),
        "parent_id": session.parent_id,
        "parent_message_id": session.parent_message_id,
        "permissions_json": encode(session.permissions),
        "metadata_json": encode(session.metadata),
        "prompt_tokens": session.prompt_tokens,
        "completion_tokens": session.completion_tokens,
        "reasoning_tokens": session.reasoning_tokens,
        "cache_read": session.cache_read,
        "cache_write": session.cache_write,
        "total_tokens": session.total_tokens,
        "cost_usd": session.cost_usd,
        "created_at": session.created_at,
        "updated_at": session.updated_at,
        "archived_at": session.archived_at,
    }


def to_session(row: Row, *, keep_damaged: bool = False) -> Session:
    """A session row in the order of ``session_columns``. A damaged one keeps its place in a list, and says so."""
    try:
        model = msgspec.convert(decode(row[3], "model of a session", session_id=row[0]), Model)
        permissions = decode(row[6], "permissions of a session", session_id=row[0])
        metadata = _object(row[7], "metadata of a session", session_id=row[0])
        if not isinstance(permissions, list):
            raise RowUndecodable("the permissions of a session are not a JSON array", session_id=row[0])
    except (RowUndecodable, msgspec.ValidationError) as error:
        if not keep_damaged:
            if isinstance(error, RowUndecodable):
                raise
            raise RowUndecodable(f"the model of a session is not readable: {error}", session_id=row[0]) from error
        model, permissions, metadata = Model("unknown", "unknown"), [], {"damaged": True}
    return Session(
        id=row[0],
        agent=row[1],
        workspace_root=row[2],
        model=model,
        parent_id=row[4],
        parent_message_id=row[5],
        permissions=permissions,
        metadata=metadata,
        prompt_tokens=row[8],
        completion_tokens=row[9],
        reasoning_tokens=row[10],
        cache_read=row[11],
        cache_write=row[12],
        total_tokens=row[13],
        cost_usd=row[14],
        created_at=row[15],
        updated_at=row[16],
        archived_at=row[17],
        head_turn_id=row[18],
    )


def message_params(message: MessageRow) -> Params:
    return {
        "id": message.id,
        "session_id": message.session_id,
        "role": message.role,
        "metadata_json": encode(message.metadata),
        "created_at": message.created_at,
        "updated_at": message.updated_at,
    }


def to_message(row: Row, parts: tuple[PartRow, ...], keep_damaged: bool) -> MessageRow:
    try:
        metadata = orjson.loads(row[3])
    except orjson.JSONDecodeError as error:
        if not keep_damaged:
            raise RowUndecodable(
                f"the metadata of a message is not readable: {error}", session_id=row[1], message_id=row[0]
            ) from error
        metadata = {"damaged": True}
    return MessageRow(row[0], row[1], row[2], row[4], row[5], metadata, parts)


def part_params(part: PartRow, message_id: str, session_id: str) -> Params:
    return {
        "id": part.id,
        "message_id": message_id,
        "session_id": session_id,
        "index": part.index,
        "type": part.type,
        "data_json": encode(part.data),
        "tool_call_id": part.tool_call_id,
        "tool_state": part.tool_state,
        "created_at": part.created_at,
        "updated_at": part.updated_at,
    }


def to_part(row: Row, keep_damaged: bool) -> PartRow:
    try:
        data = orjson.loads(row[3])
    except orjson.JSONDecodeError as error:
        if not keep_damaged:
            raise RowUndecodable(
                f"a part is not readable: {error}", message_id=row[1], part_id=row[0], index=row[2]
            ) from error
        data = damaged_part(row[0], str(error))
    return PartRow(row[0], row[2], data, row[4], row[5])


def damaged_part(part_id: str, reason: str) -> dict[str, Any]:
    """What stands where a part cannot be read: an AI SDK data part, so every client can show it."""
    return {"type": "data-damaged", "data": {"part_id": part_id, "reason": reason}}


def turn_params(turn: Turn) -> Params:
    return {
        "id": turn.id,
        "session_id": turn.session_id,
        "parent_turn_id": turn.parent_turn_id,
        "turn_type": turn.kind,
        "status": turn.status,
        "depth": turn.depth,
        "compaction_turn_id": turn.compaction_turn_id,
        "origin_turn_id": turn.origin_turn_id,
        "data_json": encode(turn.data),
        "created_at": turn.created_at,
        "settled_at": turn.settled_at,
    }


def to_turn(row: Row) -> Turn:
    if row[3] not in _KINDS or row[4] not in _STATUSES:
        raise RowUndecodable(f"a turn reads as {row[3]!r}, {row[4]!r}", session_id=row[1], turn_id=row[0])
    return Turn(
        id=row[0],
        session_id=row[1],
        parent_turn_id=row[2],
        kind=row[3],
        status=row[4],
        depth=row[5],
        compaction_turn_id=row[6],
        origin_turn_id=row[7],
        data={} if row[8] == "{}" else _object(row[8], "data of a turn", session_id=row[1], turn_id=row[0]),
        created_at=row[9],
        settled_at=row[10],
    )


def to_move(row: Row) -> HeadMove:
    return HeadMove(*row)


def to_pruned(row: Row) -> Pruned:
    return Pruned(*row)


def step_params(step: Step) -> Params:
    return {
        "turn_id": step.turn_id,
        "step": step.index,
        "message_id": step.message_id,
        "model_json": encode_model(step.model),
        "input": step.usage.input,
        "output": step.usage.output,
        "reasoning": step.usage.reasoning,
        "cache_read": step.usage.cache_read,
        "cache_write": step.usage.cache_write,
        "cost_usd": step.cost_usd,
        "finish_reason": step.finish_reason,
        "prompt_digest": step.prompt_digest,
        "data_json": encode(step.data),
        "started_at": step.started_at,
        "finished_at": step.finished_at,
    }


def to_step(row: Row) -> Step:
    return Step(
        turn_id=row[0],
        index=row[1],
        message_id=row[2],
        model=msgspec.convert(decode(row[3], "model of a step", turn_id=row[0]), Model),
        usage=Usage(*row[4:9]),
        cost_usd=row[9],
        finish_reason=row[10],
        prompt_digest=row[11],
        data=_object(row[12], "data of a step", turn_id=row[0]),
        started_at=row[13],
        finished_at=row[14],
    )
