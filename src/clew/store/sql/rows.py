"""Conversion between rows and values: JSON columns, and the handling of columns that cannot be decoded.

JSON is stored as text, exactly as encoded here, so that any reader of the format can use it. A row that cannot be
decoded raises ``RowUndecodable`` with its ids; where the caller wants to see the rest, a placeholder replaces it.
Parameters may include more than a statement names.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args

import msgspec
import orjson
from msgspec.structs import replace

from clew.convert import convert
from clew.errors import RowUndecodable
from clew.store.base import Replica
from clew.transcript.damage import DAMAGED, UNREADABLE, damaged_part
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.metadata import VARIANT_KEY
from clew.transcript.model_call import CallEnd, ModelCall, Purpose
from clew.transcript.session import Model, Session, Spend
from clew.transcript.turn import Step, Turn, TurnKind
from clew.transcript.turn_state import TurnStatus
from clew.transcript.usage import Usage
from clew.transcript.workspace_snapshot import Restore, SnapshotAt, SnapshotStatus, WorkspaceSnapshot

_KINDS: Final = frozenset(get_args(TurnKind))
_STATUSES: Final = frozenset(get_args(TurnStatus))
_PURPOSES: Final = frozenset(get_args(Purpose))
_ENDS: Final = frozenset(get_args(CallEnd))
MESSAGE_CREATED_AT: Final = 4
"""Index in ``message_columns``."""
MESSAGE_SEAL: Final = 6
"""Index of the seal in rows that have one: after ``message_columns``."""
_TURN: Final = (
    *("id", "session_id", "parent_turn_id", "kind", "status", "depth", "compaction_turn_id", "origin_turn_id"),
    *("data", "created_at", "settled_at"),
)
"""The order of ``turn_columns``."""
_CALL: Final = (
    *("id", "session_id", "turn_id", "step", "message_id", "purpose", "model", "usage", "cost_usd", "asked_at"),
    *("first_chunk_at", "ended_at", "tools_ms", "ended", "estimated", "workspace", "owner"),
)
"""The order of ``call_columns``, with the columns of a model and of a usage combined."""
_SNAPSHOT: Final = (
    *("id", "session_id", "workspace", "point", "state", "created_at", "message_id", "turn_id", "step", "tree"),
    "replica",
)
"""The order of ``snapshot_columns`` before its data."""
_POINTS: Final = frozenset(get_args(SnapshotAt))
_SNAPSHOT_STATES: Final = frozenset(get_args(SnapshotStatus))

_NO_SPEND: Final = Spend(0, 0, 0.0, 0)
_MODELS: Final[dict[Any, Model]] = {}
_MAX_MODELS: Final = 1_000

Row = Sequence[Any]
Params = dict[str, Any]


def encode(value: Any) -> str:
    return orjson.dumps(value).decode()


def decode(text: Any, what: str, **ids: object) -> Any:
    try:
        return orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError) as error:
        raise RowUndecodable(f"the {what} cannot be decoded: {error}", **ids) from error


def _object(text: Any, what: str, **ids: object) -> dict[str, Any]:
    value = decode(text, what, **ids)
    if not isinstance(value, dict):
        raise RowUndecodable(f"the {what} is not a JSON object", **ids)
    return value


@functools.lru_cache(256)
def encode_model(model: Model) -> str:
    return msgspec.json.encode(model).decode()


def with_variant(model: Model, metadata: Mapping[str, Any]) -> Model:
    """Return the model as it is stored: with the variant of the newest turn, unless one was picked for the next."""
    variant = metadata.get(VARIANT_KEY)
    return replace(model, variant=variant) if model.variant is None and isinstance(variant, str) else model


def session_params(session: Session) -> Params:
    return {
        **msgspec.structs.asdict(session),
        "model_json": encode_model(with_variant(session.model, session.metadata)),
        "permissions_json": encode(session.permissions),
        "metadata_json": encode(session.metadata),
    }


def to_session(row: Row, *, keep_damaged: bool = False, spend: Spend = _NO_SPEND) -> Session:
    """Convert a session. With ``keep_damaged`` a damaged one is returned, marked as damaged."""
    ids = {"session_id": row[0]}
    try:
        model = _model(row[3] or "{}", "model of a session", **ids)
        permissions = [] if row[6] == "[]" else decode(row[6], "permissions of a session", **ids)
        metadata = _object(row[7], "metadata of a session", **ids)
        if not isinstance(permissions, list):
            raise RowUndecodable("the permissions of a session are not a JSON array", **ids)
    except (RowUndecodable, msgspec.ValidationError) as error:
        if not keep_damaged:
            if isinstance(error, RowUndecodable):
                raise
            raise RowUndecodable(f"the model of a session cannot be decoded: {error}", **ids) from error
        model, permissions, metadata = Model("unknown", "unknown"), [], {DAMAGED: UNREADABLE}
    if model.variant is not None and model.variant == metadata.get(VARIANT_KEY):
        model = model.plain
    # Written out instead of looping over a table of names: lists have many rows.
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
        owner=row[19],
        alias=row[20],
        spend=spend,
    )


def _model(text: Any, what: str, **ids: object) -> Model:
    """Decode a model, cached: most sessions and steps name the same few."""
    model = _MODELS.get(text)
    if model is None:
        model = convert(_with_names(decode(text, what, **ids)), Model)
        if len(_MODELS) < _MAX_MODELS:
            _MODELS[text] = model
    return model


def _with_names(model: Any) -> Any:
    """Return a model with both names. Other programs store none, or only a tier, until they have chosen one."""
    if not isinstance(model, dict):
        return model
    return {**model, **{name: "unknown" for name in ("provider_id", "model_id") if model.get(name) is None}}


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
    ids, times = {"session_id": row[1], "message_id": row[0]}, (row[4], row[5])
    try:
        metadata = _object(row[3], "metadata of a message", **ids)
        if not all(isinstance(at, int) for at in times):
            raise RowUndecodable("the times of a message are not whole numbers", **ids)
    except RowUndecodable:
        if not keep_damaged:
            raise
        metadata = {DAMAGED: UNREADABLE}
        times = (0, 0)
    return MessageRow(row[0], row[1], row[2], times[0], times[1], metadata, parts)


def part_params(part: PartRow, message_id: str, session_id: str) -> Params:
    call_id = part.tool_call_id
    return {
        "id": part.id,
        "message_id": message_id,
        "session_id": session_id,
        "index": part.index,
        "type": part.type,
        "data_json": encode(part.data),
        "tool_call_id": call_id,
        "tool_state": part.tool_state if call_id is not None else None,
        "created_at": part.created_at,
        "updated_at": part.updated_at,
    }


def to_part(row: Row, keep_damaged: bool) -> PartRow:
    try:
        data = orjson.loads(row[3])
    except orjson.JSONDecodeError as error:
        if not keep_damaged:
            raise RowUndecodable(
                f"a part cannot be decoded: {error}", message_id=row[1], part_id=row[0], index=row[2]
            ) from error
        data = damaged_part("part_id", row[0], str(error))
    return PartRow(row[0], row[2], data, row[4], row[5])


def turn_params(turn: Turn) -> Params:
    return {**msgspec.structs.asdict(turn), "turn_type": turn.kind, "data_json": encode(turn.data)}


def to_turn(row: Row) -> Turn:
    """Convert a turn; further columns are ignored.

    Fields that cannot be decoded are derived from the rest of the row, and the damage is noted in its data: its
    messages are intact and stay readable. A turn whose outcome is unknown counts as failed.
    """
    if row[8] == "{}" and row[3] in _KINDS and row[4] in _STATUSES:
        # The common case; a long line has many turns.
        return Turn(
            id=row[0],
            session_id=row[1],
            parent_turn_id=row[2],
            kind=row[3],
            status=row[4],
            depth=row[5],
            compaction_turn_id=row[6],
            origin_turn_id=row[7],
            created_at=row[9],
            settled_at=row[10],
        )
    fields = dict(zip(_TURN, row, strict=False))
    damage: list[str] = []
    try:
        data = {} if row[8] == "{}" else _object(row[8], "data of a turn", session_id=row[1], turn_id=row[0])
    except RowUndecodable as error:
        data = {}
        damage.append(str(error))
    if row[3] not in _KINDS:
        fields["kind"] = "compaction" if fields["compaction_turn_id"] == fields["id"] else "normal"
        damage.append(f"its type is invalid: {row[3]!r}")
    if row[4] not in _STATUSES:
        fields["status"] = "running" if fields["settled_at"] is None else "failed"
        damage.append(f"its status is invalid: {row[4]!r}")
    return Turn(**{**fields, "data": {**data, DAMAGED: "; ".join(damage)} if damage else data})


def step_params(step: Step) -> Params:
    return {
        **msgspec.structs.asdict(step),
        **msgspec.structs.asdict(step.usage),
        "step": step.index,
        "model_json": encode_model(step.model),
        "data_json": encode(step.data),
    }


def to_step(row: Row) -> Step:
    return Step(
        turn_id=row[0],
        index=row[1],
        message_id=row[2],
        model=_model(row[3], "model of a step", turn_id=row[0]),
        usage=Usage(*row[4:9]),
        cost_usd=row[9],
        finish_reason=row[10],
        prompt_digest=row[11],
        data=_object(row[12], "data of a step", turn_id=row[0]),
        started_at=row[13],
        finished_at=row[14],
    )


def call_params(call: ModelCall) -> Params:
    return {**msgspec.structs.asdict(call), **msgspec.structs.asdict(call.model), **msgspec.structs.asdict(call.usage)}


def to_call(row: Row) -> ModelCall:
    """Convert a model call from ``call_columns``."""
    if row[5] not in _PURPOSES or row[19] not in _ENDS:
        raise RowUndecodable(
            f"a model call has an invalid purpose or end: {row[5]!r}, {row[19]!r}", session_id=row[1], call_id=row[0]
        )
    values = (*row[:6], Model(*row[6:9]), Usage(*row[9:14]), *row[14:20], bool(row[20]), row[21], row[22])
    return ModelCall(**dict(zip(_CALL, values, strict=True)))


def to_replica(row: Row) -> Replica:
    """Convert a row with ``replica_columns``."""
    id_, url, version, started_at, beat_at, lease_until, draining, alive = row
    return Replica(id_, url, version, started_at, beat_at, lease_until, bool(draining), bool(alive))


def snapshot_params(snapshot: WorkspaceSnapshot) -> Params:
    data: dict[str, Any] = {"skipped": dict(snapshot.skipped)} if snapshot.skipped else {}
    if snapshot.problem is not None:
        data["problem"] = snapshot.problem
    if snapshot.restore is not None:
        data["restore"] = msgspec.to_builtins(snapshot.restore)
    return {**{name: getattr(snapshot, name) for name in _SNAPSHOT}, "data_json": encode(data)}


def to_snapshot(row: Row) -> WorkspaceSnapshot:
    """Convert the row of a workspace snapshot from ``snapshot_columns``."""
    if row[3] not in _POINTS or row[4] not in _SNAPSHOT_STATES:
        raise RowUndecodable(
            f"a snapshot has an invalid point or state: {row[3]!r}, {row[4]!r}", session_id=row[1], snapshot_id=row[0]
        )
    data = _object(row[11], "data of a snapshot", snapshot_id=row[0])
    restore = data.get("restore")
    try:
        return WorkspaceSnapshot(
            **dict(zip(_SNAPSHOT, row[:11], strict=True)),
            problem=data.get("problem"),
            skipped=data.get("skipped", {}),
            restore=None if restore is None else convert(restore, Restore),
        )
    except msgspec.ValidationError as error:
        raise RowUndecodable(f"a restore does not decode: {error}", snapshot_id=row[0]) from error
