"""Messages and their parts: as rows in a store, as shown to people and clients, and as sent to a model.

A part is a JSON object in the AI SDK's shape, stored verbatim: unknown keys and unknown part types pass through
untouched. Only the fields that rows are looked up by are extracted from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec
import orjson

from clew.transcript.damage import DAMAGED, STUB, damaged_part, seal_of
from clew.transcript.metadata import MessageMetadata
from clew.transcript.part import call_id_of, is_preliminary, kind_of, state_of, text_part, texts_of, with_fewer_files

if TYPE_CHECKING:
    from clew.transcript.fold import Fold

__all__ = ["Message", "MessageRow", "PartRow", "Role", "copied", "sent_message", "shown_message"]

Role = Literal["user", "assistant", "system"]


class PartRow(msgspec.Struct, frozen=True, gc=False):
    """One stored part. ``data`` is the full AI SDK part."""

    id: str
    index: int
    data: dict[str, Any]
    created_at: int
    updated_at: int

    @property
    def type(self) -> str:
        return kind_of(self.data)

    @property
    def tool_call_id(self) -> str | None:
        return call_id_of(self.data)

    @property
    def tool_state(self) -> str | None:
        """The state of a call, None for other parts.

        A call with a preliminary output counts as ``input-available``, so that queries for calls without a result find
        it.
        """
        if call_id_of(self.data) is None:
            return None
        return "input-available" if is_preliminary(self.data) else state_of(self.data)


class MessageRow(MessageMetadata, msgspec.Struct, frozen=True, gc=False):
    """One stored message with its parts in order. ``metadata`` holds the format's keys and any others given."""

    id: str
    session_id: str
    role: Role
    created_at: int
    updated_at: int
    metadata: dict[str, Any]
    parts: tuple[PartRow, ...] = ()

    @property
    def texts(self) -> list[str]:
        """The text of each text part."""
        return texts_of(part.data for part in self.parts)

    @property
    def seal(self) -> str:
        return seal_of(part.data for part in self.parts)

    def fold(self) -> Fold:
        """Return a fold that continues this message."""
        from clew.transcript.fold import Fold

        return Fold(self.id, parts=[part.data for part in self.parts], metadata=self.metadata)


class Message(MessageMetadata, msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A message as a view shows it: an AI SDK ``UIMessage``, ready for ``useChat``."""

    id: str
    role: Role
    parts: list[dict[str, Any]]
    metadata: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        """The text of each text part."""
        return texts_of(self.parts)

    @property
    def memo(self) -> dict[Any, Any]:
        """Values derived from this message, such as its size or digest.

        They stay valid because a message is immutable; a changed copy begins with an empty memo.
        """
        return self.__dict__


def copied(message: Message) -> Message:
    """Return a deep copy of the message."""
    parts, metadata = orjson.loads(orjson.dumps([message.parts, message.metadata]))
    return Message(message.id, message.role, parts, metadata)


def shown_message(row: MessageRow, turn_id: str | None) -> Message:
    """Return the row as a view shows it, with the turn through which the view reached it.

    A damaged message is marked in its metadata and by a part at its end, for clients that render only parts.
    """
    parts = [part.data for part in row.parts]
    if row.metadata:
        if row.is_summary:
            parts = [*map(with_fewer_files, parts)]
        if DAMAGED in row.metadata and row.damage is not None:
            parts.append(damaged_part("message_id", row.id, row.damage))
    metadata = {**row.metadata, "created_at": row.created_at}
    if turn_id is not None:
        metadata["turn_id"] = turn_id
    return Message(row.id, row.role, parts, metadata)


def sent_message(row: MessageRow, turn_id: str, end: int | None = None) -> Message:
    """Return the row as a model is sent it, without the parts from ``end`` on; a damaged message becomes a stub."""
    message = shown_message(row, turn_id)
    if DAMAGED not in row.metadata or row.damage is None:
        return message if end is None else msgspec.structs.replace(message, parts=message.parts[:end])
    return msgspec.structs.replace(message, parts=[text_part(STUB)])
