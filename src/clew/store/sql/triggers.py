"""Triggers on a SQL engine: converting rows of the ledger, of schedules and of webhooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

import msgspec

from clew.convert import convert
from clew.errors import RowUndecodable
from clew.store.sql.rows import Params, Row, decode, encode, to_session
from clew.store.sql.statements import SqlReader, Statements, reading
from clew.transcript.session import Session
from clew.triggers.values.ledger import Direction, EventPage, EventQuery, LedgerEvent
from clew.triggers.values.routing import RouteKind
from clew.triggers.values.schedule import Schedule
from clew.triggers.values.webhook import Webhook

__all__ = [
    "SqlTriggers",
    "event_params",
    "find_named",
    "load_routed",
    "schedule_params",
    "to_event",
    "to_schedule",
    "to_webhook",
    "webhook_params",
]

log = logging.getLogger("clew.store")

_MAX_SEQ: Final = 2**63 - 1
_EVENT: Final = (
    *("seq", "id", "direction", "source", "source_id", "session_id", "message_id", "turn_id"),
    *("attempt", "type", "status", "digest", "routing", "data", "at", "owner"),
)
T = TypeVar("T", Schedule, Webhook)


def event_params(event: LedgerEvent) -> Params:
    columns = {"routing_json": encode(event.routing), "data_json": encode(event.data)}
    return {**msgspec.structs.asdict(event), **columns}


def to_event(row: Row) -> LedgerEvent:
    """Convert a row with ``event_columns``."""
    known = dict(zip(_EVENT, row, strict=True))
    columns = {name: _data(known[name], known["id"]) for name in ("routing", "data")}
    return LedgerEvent(**{**known, **columns})


def _data(text: Any, event_id: str) -> dict[str, Any]:
    """Decode an event's data. Damage is reported in place of the data, so that other events can still be read and
    closed."""
    try:
        value = decode(text, "data of an event", event_id=event_id)
    except RowUndecodable as error:
        return {"damaged": str(error)}
    return value if isinstance(value, dict) else {"damaged": "the data of an event is not an object"}


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
        "name": webhook.key,
        "session_id": webhook.routing.session_id,
        "secret": webhook.secret,
        "data_json": encode(data),
    }


def to_webhook(row: Row) -> Webhook:
    name, secret, data = row
    values = decode(data, "data of a webhook", webhook=name)
    return _convert({**(values if isinstance(values, dict) else {}), "secret": secret}, Webhook, webhook=name)


def _convert(value: Any, type_: type[T], **ids: object) -> T:
    try:
        return convert(value, type_)
    except msgspec.ValidationError as error:
        raise RowUndecodable(f"a {type_.__name__.lower()} cannot be decoded: {error}", **ids) from error


def load_routed(sql: Statements, kind: RouteKind, name: str, owner: str | None) -> tuple[Session, ...]:
    statement = "load_labelled" if kind == "label" else "load_keyed"
    return tuple(map(to_session, sql.rows(statement, {"name": name, "owner": owner})))


def find_named(sql: Statements, name: str, owner: str | None) -> str | None:
    row = sql.first("find_named", {"name": name, "owner": owner})
    return row[0] if row else None


class SqlTriggers(SqlReader):
    """See :class:`clew.store.base.Triggers` for the contract of each method."""

    @reading
    def find_named(self, sql: Statements, name: str, owner: str | None) -> str | None:
        return find_named(sql, name, owner)

    @reading
    def load_routed(self, sql: Statements, kind: RouteKind, name: str, owner: str | None = None) -> tuple[Session, ...]:
        return load_routed(sql, kind, name, owner)

    @reading
    def find_event(self, sql: Statements, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        row = sql.first("find_event", {"direction": direction, "source": source, "source_id": source_id})
        return to_event(row) if row else None

    @reading
    def find_repeated(self, sql: Statements, source: str, digest: str, since: int) -> LedgerEvent | None:
        row = sql.first("find_repeated", {"source": source, "digest": digest, "since": since})
        return to_event(row) if row else None

    @reading
    def find_event_of_message(self, sql: Statements, session_id: str, message_id: str) -> LedgerEvent | None:
        row = sql.first("find_event_of_message", {"session_id": session_id, "message_id": message_id})
        return to_event(row) if row else None

    @reading
    def list_events(self, sql: Statements, query: EventQuery) -> EventPage:
        name = "list_events"
        # The narrowest index first: the other conditions are checked row by row.
        for value, of in ((query.turn_id, "turn"), (query.session_id, "session"), (query.source, "source")):
            if value is not None:
                name = f"list_events_of_{of}"
                break
        before = _MAX_SEQ if query.before is None else query.before
        params = {**msgspec.structs.asdict(query), "limit": query.limit + 1, "before": before}
        found = [to_event(row) for row in sql.rows(name, params)]
        page = tuple(found[: query.limit])
        return EventPage(page, page[-1].seq if len(found) > query.limit else None)

    @reading
    def open_events(self, sql: Statements, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        name = "open_events" if session_id is None else "open_events_of_session"
        return tuple(to_event(row) for row in sql.rows(name, {"session_id": session_id}))

    @reading
    def list_schedules(self, sql: Statements) -> tuple[Schedule, ...]:
        return _readable(to_schedule, sql.rows("list_schedules", {}))

    @reading
    def list_webhooks(self, sql: Statements) -> tuple[Webhook, ...]:
        return _readable(to_webhook, sql.rows("list_webhooks", {}))


def _readable(read: Callable[[Row], T], found: Iterable[Row]) -> tuple[T, ...]:
    """Convert the rows that can be decoded. Others are skipped and logged; ``verify`` reports them."""
    values: list[T] = []
    for row in found:
        try:
            values.append(read(row))
        except RowUndecodable as error:
            log.error("%s", error)
    return tuple(values)
