"""The position of a client in the stream of a turn: a message, and the number of the last chunk it has of it.

Chunks of a message are numbered in the order they become durable, over all runs on it and in every process. A client
that names its position gets exactly the rest. Where the server cannot tell the rest, it sends a chunk that says
``reset`` and then the whole message from its first part: the client drops what it has of that message.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from clew.errors import InvalidCursor
from clew.transcript.chunk import Chunk, Data, chunk_dict

__all__ = ["RESET", "NumberedChunk", "StreamChunk", "StreamCursor", "StreamPosition", "reset_chunk"]

RESET: Final = "data-reset"
"""The type of the chunk that begins a message again. It is transient: a client that does not know it ignores it."""
_CURSOR: Final = re.compile(r"([\x21-\x7e]{1,200}):([0-9]{1,15})", re.ASCII)

NumberedChunk = tuple[int | None, Chunk]
"""A chunk with its number in its message; a transient one has that of the chunk before it. Without a number it belongs
to the chunk that follows: no position lies between them."""


class StreamCursor(msgspec.Struct, frozen=True):
    """A message, and the number of the last chunk a client has of it."""

    message_id: str
    n: int

    def __str__(self) -> str:
        return f"{self.message_id}:{self.n}"

    @classmethod
    def parse(cls, text: str) -> StreamCursor:
        found = _CURSOR.fullmatch(text)
        if found is None:
            raise InvalidCursor("a stream cursor is the id of an event of this stream: MESSAGE_ID:NUMBER")
        return cls(found[1], int(found[2]))


class StreamChunk(dict[str, Any]):
    """A chunk as JSON. ``cursor`` is the position after it, if it is one that a client can name."""

    __slots__ = ("cursor",)

    def __init__(self, chunk: dict[str, Any], cursor: str | None = None) -> None:
        super().__init__(chunk)
        self.cursor = cursor


class StreamPosition:
    """The position of a client in the stream of a turn, over several connections.

    ``cursor`` is sent with the next request.
    """

    def __init__(self, cursor: str | None = None) -> None:
        self.cursor = cursor
        self._begun: tuple[Any] | None = None

    def take(self, chunk: StreamChunk) -> list[StreamChunk]:
        """Return a chunk as a reader gets it: a message that begins a second time is reset first."""
        kind, again = chunk.get("type"), False
        if kind == "start":
            begins = (chunk.get("messageId"),)
            again, self._begun = begins == self._begun, begins
        elif kind == RESET:
            self._begun = self.cursor = None
        self.cursor = chunk.cursor or self.cursor
        return [StreamChunk(chunk_dict(reset_chunk(chunk.get("messageId")))), chunk] if again else [chunk]


def reset_chunk(message_id: str | None) -> Data:
    """Return the chunk that tells a client to drop what it has of a message, and of later ones of its turn."""
    return Data(RESET.removeprefix("data-"), {"messageId": message_id}, transient=True)
