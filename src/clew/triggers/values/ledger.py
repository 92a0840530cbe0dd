"""The event ledger as values: inbound events, and the outbound events that reply to them.

An inbound event and its replies have the same ``source`` and ``source_id``. Rows are only added, never changed, so the
turn of an inbound event, which starts after its row is written, is looked up through its message. Resuming that turn
after a reply, or answering again, is another attempt: one more inbound and one more outbound row, of which the newest
counts. Rows outlive their session: who, where, when and the result stay, the content is deleted.
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
]

Direction = Literal["in", "out"]
_SOURCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_SOURCE_ID: Final = re.compile(r"[\x21-\x7e]{1,200}", re.ASCII)
_TYPE: Final = re.compile(r"[\x21-\x7e]{1,100}", re.ASCII)
PERSON: Final = "person:local"
"""The source of users' prompts; names chosen by other programs cannot contain a colon."""
_RESERVED: Final = frozenset({"schedule", "hook", "clew"})


class LedgerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the ledger. ``seq`` is set by the store; ``status`` is the turn's, for outbound events only, except for
    repeated deliveries: both rows say ``duplicate``.

    ``turn_id`` is stored with outbound events and looked up for inbound ones. ``digest`` is that of the inbound
    content; ``routing`` says how it found its session. ``attempt`` counts from 1; the rows of later ones name their
    turn. ``owner`` is the session's, set by the store.
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
        """Return whether it is a first delivery that started, or queued, a turn."""
        return self.direction == "in" and self.attempt == 1 and self.status is None


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query of the ledger, newest first."""

    limit: int = 50
    before: int | None = None
    session_id: str | None = None
    source: str | None = None
    turn_id: str | None = None
    direction: Direction | None = None
    owner: str | None = None


class EventPage(msgspec.Struct, frozen=True):
    """A page of the ledger; ``next`` is the start of the next page, None on the last."""

    events: tuple[LedgerEvent, ...]
    next: int | None


def tag_of(owner: str) -> str:
    """Return an opaque tag for an owner, for names that others may see."""
    return sha256(owner.encode()).hexdigest()[:16]


def owned_source(owner: str | None, source: str) -> str:
    """Return a source as it is stored, unique per owner. Names chosen by other programs cannot contain a colon."""
    return source if owner is None else f"owner:{tag_of(owner)}:{source}"


def check_source(source: str) -> str:
    """Check a source named by another program: it must not be one of clew's own."""
    if not _SOURCE.fullmatch(source) or source.lower() in _RESERVED:
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
    """Return a digest by which two deliveries count as the same event."""
    return sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


def event_text(payload: Any) -> str:
    """Return a payload as text for the model."""
    return payload if isinstance(payload, str) else orjson.dumps(payload, option=orjson.OPT_INDENT_2).decode()
