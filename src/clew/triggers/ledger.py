"""The events ledger as values: what came in, and what went out for it.

An inbound event and the outbound ones that answer it have the same ``source`` and ``source_id``. Rows are added and
never changed, so the turn of an inbound event, which begins only after its row, is looked up through its message. To go
on with that turn once something went out, or to ask anew, is another attempt: a row more in, and a row more out, of
which the newest counts. A row outlives its session: who, where, when and what came of it stay, what was said goes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
import orjson

from clew.errors import InvalidInput

__all__ = [
    "PERSON",
    "Direction",
    "EventPage",
    "EventQuery",
    "LedgerEvent",
    "check_source",
    "check_source_id",
    "check_type",
    "digest_event",
    "event_text",
    "owned_source",
    "tag_of",
    "without_content",
]

Direction = Literal["in", "out"]
_SOURCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_SOURCE_ID: Final = re.compile(r"[\x21-\x7e]{1,200}", re.ASCII)
_TYPE: Final = re.compile(r"[\x21-\x7e]{1,100}", re.ASCII)
PERSON: Final = "person:local"
"""The source of what a person typed; nobody outside can choose a name with a colon."""
_OWN: Final = frozenset({"schedule", "hook", "clew"})


class LedgerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger. ``seq`` is given by the store; ``status`` is the turn's, of outbound ones alone, but for a
    delivery that repeats another one: both its rows say ``duplicate``.

    ``turn_id`` is stored with outbound events and looked up for inbound ones. ``digest`` is of what came in;
    ``routing`` says how it found its session. ``attempt`` counts from 1; the rows of later ones name their turn.
    ``owner`` is the session's, which the store fills in.
    """

    id: str
    direction: Direction
    source: str
    source_id: str
    session_id: str
    message_id: str | None
    at: int
    type: str | None = None
    turn_id: str | None = None
    attempt: int = 1
    status: str | None = None
    digest: str | None = None
    routing: dict[str, Any] = msgspec.field(default_factory=dict)
    data: dict[str, Any] = msgspec.field(default_factory=dict)
    owner: str | None = None
    seq: int = 0

    @property
    def is_taken(self) -> bool:
        """Whether it came in for the first time and started, or queued, a turn."""
        return self.direction == "in" and self.attempt == 1 and self.status is None


def without_content(event: LedgerEvent) -> LedgerEvent:
    """What stays of an event when its session is deleted."""
    return msgspec.structs.replace(event, data={})


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events to list, newest first."""

    limit: int = 50
    before: int | None = None
    session_id: str | None = None
    source: str | None = None
    turn_id: str | None = None
    direction: Direction | None = None
    owner: str | None = None


class EventPage(msgspec.Struct, frozen=True):
    """A page of the ledger; ``next`` is where the next one begins, None on the last."""

    events: tuple[LedgerEvent, ...]
    next: int | None


def tag_of(owner: str) -> str:
    """An owner in a name that others may see: it says who is whose, and not who they are."""
    return sha256(owner.encode()).hexdigest()[:16]


def owned_source(owner: str | None, source: str) -> str:
    """A source as it is stored: event identities are an owner's own. Nobody outside can choose a name with a colon."""
    return source if owner is None else f"owner:{tag_of(owner)}:{source}"


def check_source(source: str) -> str:
    """The name of a source as somebody outside may choose it: none of clew's own."""
    if not _SOURCE.fullmatch(source) or source.lower() in _OWN:
        raise InvalidInput(
            "a source is 1 to 64 letters, digits, dots, dashes and underscores, and not schedule, hook or clew"
        )
    return source


def check_source_id(source_id: str) -> str:
    if not _SOURCE_ID.fullmatch(source_id):
        raise InvalidInput("a source_id is 1 to 200 printable ASCII characters without spaces")
    return source_id


def check_type(type_: str | None) -> str | None:
    if type_ is not None and not _TYPE.fullmatch(type_):
        raise InvalidInput("a type is 1 to 100 printable ASCII characters without spaces")
    return type_


def digest_event(content: Mapping[str, Any]) -> str:
    """What makes two deliveries of an event the same one."""
    return sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


def event_text(payload: Any) -> str:
    """A payload as the model reads it."""
    return payload if isinstance(payload, str) else orjson.dumps(payload, option=orjson.OPT_INDENT_2).decode()
