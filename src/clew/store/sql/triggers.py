"""Rows of the ledger, of schedules and of webhooks, and the values they stand for."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

from clew.errors import RowUndecodable
from clew.store.sql.rows import Params, Row, decode, encode
from clew.triggers.ledger import EventQuery, LedgerEvent
from clew.triggers.schedule import Schedule
from clew.triggers.webhook import Webhook

__all__ = [
    "event_params",
    "query_params",
    "schedule_params",
    "to_event",
    "to_schedule",
    "to_webhook",
    "webhook_params",
]

_LAST: Final = 2**63 - 1
T = TypeVar("T", Schedule, Webhook)


def event_params(event: LedgerEvent) -> Params:
    return {**msgspec.structs.asdict(event), "data_json": encode(event.data)}


def to_event(row: Row) -> LedgerEvent:
    seq, id_, direction, source, source_id, session_id, message_id, turn_id, type_, status, digest, data, at = row
    return LedgerEvent(
        seq=seq,
        id=id_,
        direction=direction,
        source=source,
        source_id=source_id,
        session_id=session_id,
        message_id=message_id,
        turn_id=turn_id,
        type=type_,
        status=status,
        digest=digest,
        data=_data(data, id_),
        at=at,
    )


def _data(text: Any, event_id: str) -> dict[str, Any]:
    """What an event holds. One that no longer reads says so: it must not keep the others from being seen or closed."""
    try:
        value = decode(text, "data of an event", event_id=event_id)
    except RowUndecodable as error:
        return {"damaged": str(error)}
    return value if isinstance(value, dict) else {"damaged": "the data of an event is not an object"}


def query_params(query: EventQuery) -> Params:
    params = {**msgspec.structs.asdict(query), "limit": query.limit + 1}
    return {**params, "before": _LAST if query.before is None else query.before}


def schedule_params(schedule: Schedule) -> Params:
    return {
        "id": schedule.id,
        "session_id": schedule.routing.session_id,
        "paused": schedule.paused,
        "next_fire_at": schedule.next_fire_at,
        "data_json": encode(msgspec.to_builtins(schedule)),
    }


def to_schedule(row: Row) -> Schedule:
    id_, data = row
    return _convert(decode(data, "data of a schedule", schedule_id=id_), Schedule, schedule_id=id_)


def webhook_params(webhook: Webhook) -> Params:
    data = {name: value for name, value in msgspec.to_builtins(webhook).items() if name != "secret"}
    return {
        "name": webhook.name,
        "session_id": webhook.routing.session_id,
        "secret": webhook.secret,
        "data_json": encode(data),
    }


def to_webhook(row: Row) -> Webhook:
    name, secret, data = row
    held = decode(data, "data of a webhook", webhook=name)
    return _convert({**(held if isinstance(held, dict) else {}), "secret": secret}, Webhook, webhook=name)


def _convert(value: Any, type_: type[T], **ids: object) -> T:
    try:
        return msgspec.convert(value, type_)
    except msgspec.ValidationError as error:
        raise RowUndecodable(f"a {type_.__name__.lower()} is not readable: {error}", **ids) from error
