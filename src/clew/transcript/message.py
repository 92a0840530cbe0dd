"""Messages and their parts: as rows in a store, as people and clients see them, and as a model is sent them.

A part is a JSON object in the AI SDK's own shape, kept verbatim: unknown keys and unknown part types pass through
untouched. Only what rows need to be found by is lifted out of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

__all__ = [
    "DAMAGED",
    "STORE_KEYS",
    "STUB",
    "VIEW_KEYS",
    "Message",
    "MessageRow",
    "PartRow",
    "Role",
    "from_stream",
    "sent",
    "shown",
]

Role = Literal["user", "assistant", "system"]

VIEW_KEYS = frozenset({"turn_id", "created_at", "user_message_id", "turn", "pruned"})
"""Metadata a view adds: the way to a message, and what is known of it elsewhere. It is never stored with one."""

DAMAGED = "damaged"
"""The metadata key that says why a message is not, or may not be, what was stored. Whoever reads a message that does
not fit its seal puts it there; where the damage cannot be seen from the rows any more it is stored with the message."""

STORE_KEYS = frozenset({"usage", "hidden_at", "hidden_by", "queued_at", DAMAGED})
"""Metadata that only the store's own writes set, each from one source; a stream that carries them is not believed."""

STUB = "[This message was damaged where it is stored. What it said is not known for sure, so it is left out.]"
"""What a model is sent in place of a damaged message, until a human has accepted it as it is."""


class PartRow(msgspec.Struct, frozen=True, gc=False):
    """One stored part. ``data`` is the full AI SDK part."""

    id: str
    index: int
    data: dict[str, Any]
    created_at: int
    updated_at: int

    @property
    def type(self) -> str:
        kind = self.data.get("type")
        return kind if isinstance(kind, str) else "unknown"

    @property
    def tool_call_id(self) -> str | None:
        value = self.data.get("toolCallId")
        return value if isinstance(value, str) else None

    @property
    def tool_state(self) -> str | None:
        if self.tool_call_id is None:
            return None
        value = self.data.get("state")
        return value if isinstance(value, str) else None


class MessageRow(msgspec.Struct, frozen=True, gc=False):
    """One stored message with its parts in order. ``metadata`` holds the format's keys and whatever else was given."""

    id: str
    session_id: str
    role: Role
    created_at: int
    updated_at: int
    metadata: dict[str, Any]
    parts: tuple[PartRow, ...] = ()

    @property
    def damage(self) -> str | None:
        """Why its text is not, or may not be, what was stored; None where nothing is known against it."""
        reason = self.metadata.get(DAMAGED)
        return reason if isinstance(reason, str) else None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message as a view shows it: an AI SDK ``UIMessage``, ready for ``useChat``."""

    id: str
    role: Role
    parts: list[dict[str, Any]]
    metadata: dict[str, Any]


def shown(row: MessageRow, turn_id: str | None) -> Message:
    """The row as a view shows it, naming the turn through which the view reached it.

    One that is damaged says so twice: in its metadata, and in a part at its end, for whoever shows parts alone.
    """
    added: Mapping[str, Any] = {"created_at": row.created_at}
    if turn_id is not None:
        added = {"turn_id": turn_id, "created_at": row.created_at}
    parts = [part.data for part in row.parts]
    if row.damage is not None:
        parts.append({"type": "data-damaged", "data": {"message_id": row.id, "reason": row.damage}})
    return Message(row.id, row.role, parts, {**row.metadata, **added})


def sent(row: MessageRow, turn_id: str | None) -> Message:
    """The row as a model is sent it: one that is damaged as a stub."""
    message = shown(row, turn_id)
    if row.damage is None:
        return message
    return msgspec.structs.replace(message, parts=[{"type": "text", "text": STUB}])


def from_stream(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """What of a stream's message metadata is stored with the message."""
    kept = metadata or {}
    return {key: value for key, value in kept.items() if key not in VIEW_KEYS and key not in STORE_KEYS}
