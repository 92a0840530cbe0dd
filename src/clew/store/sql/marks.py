"""Marks: how far the parts hold a stream, and the name of the stream in rows of the journal.

A row names every stream it holds. To be short, it uses the end of the message's id, unless another stream in the
journal has that name already. The checksum of the stream's mark covers the name, so it shows which of the two names is
used: a name is assigned to the one stream whose mark confirms it, never to one that merely ends the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

from clew.ids import is_message_id

__all__ = ["Ending", "Mark", "ending_of", "mark_crc", "messages_of", "short_name", "streams_by_name", "to_mark"]

_SHORT_PREFIX: Final = "~"
"""Prefix of a short name. No id contains it."""
_SHORT_LENGTH: Final = 8

Ending: TypeAlias = Callable[[Collection[str]], Iterable[str]]
"""Returns the ids of all messages that end in one of these."""


def short_name(message_id: str) -> str | None:
    """Return the short name of a stream; None for ids that clew did not make."""
    return _SHORT_PREFIX + message_id[-_SHORT_LENGTH:] if is_message_id(message_id) else None


def ending_of(name: str) -> str | None:
    """Return the end of the message id that this short name stands for; None for a whole id."""
    return name[1:] if name.startswith(_SHORT_PREFIX) else None


def mark_crc(message_id: str, folded_through: int, name: str | None = None) -> int:
    """Return the checksum of a mark; ``name`` is the stream's name in rows, if it is not its message's id."""
    text = f"{message_id} {folded_through}"
    return crc32((text if name is None or name == message_id else f"{text} {name}").encode())


class Mark(NamedTuple):
    """A stored mark: how far the parts hold a stream."""

    message_id: str
    session_id: str
    folded_through: int
    crc: int | None

    @property
    def name(self) -> str | None:
        """Return the name of the stream in rows; None when the mark is damaged and the name unknown."""
        if self.crc is None or self.crc == mark_crc(self.message_id, self.folded_through):
            return self.message_id
        short = short_name(self.message_id)
        is_short = short is not None and self.crc == mark_crc(self.message_id, self.folded_through, short)
        return short if is_short else None

    @property
    def is_sound(self) -> bool:
        return self.name is not None


def to_mark(row: Sequence[Any]) -> Mark:
    """Convert a row to a mark; unexpected values make it a damaged one."""
    message_id, session_id, folded_through, crc = row
    if isinstance(message_id, str) and isinstance(folded_through, int):
        return Mark(message_id, session_id, folded_through, crc)
    return Mark(str(message_id), str(session_id), 0, -1)


def streams_by_name(marks: Iterable[Mark]) -> dict[str, str]:
    """Return the streams with an intact mark, by their names in rows."""
    return {name: mark.message_id for mark in marks if (name := mark.name) is not None}


def messages_of(strays: Collection[str], marks: Mapping[str, Mark], ending: Ending) -> dict[str, list[str]]:
    """Return the messages that each of these names may belong to, when no intact mark says so.

    A stream with an intact mark uses the name its mark confirms, so an unknown name is another stream's. A mark without
    a checksum, as older versions wrote them, says nothing about short names, which did not exist then.
    """
    found: dict[str, list[str]] = {name: [name] if ending_of(name) is None else [] for name in strays}
    ends = {end for name in strays if (end := ending_of(name)) is not None}
    for message_id in ending(ends) if ends else ():
        name = short_name(message_id)
        mark = marks.get(message_id)
        if name in found and (mark is None or mark.crc is None or not mark.is_sound):
            found[name].append(message_id)
    return found
