"""Marks: how far the parts hold a stream, and what the rows of the journal call it.

A row names every stream it holds, so a stream goes by the end of its message's id, unless another one in the journal
is called so already. Which of the two names it goes by its mark says, by what its checksum is of: a name is put to the
one stream whose mark says so, and never to one that only ends the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from zlib import crc32

from clew.ids import is_message_id

__all__ = ["Ending", "Mark", "ending_of", "mark_crc", "messages_of", "short_name", "streams_by_name", "to_mark"]

_SIGN: Final = "~"
"""What a short name begins with. No id has it."""
_LENGTH: Final = 8

Ending: TypeAlias = Callable[[Collection[str]], Iterable[str]]
"""The ids of all messages that end in one of these."""


def short_name(message_id: str) -> str | None:
    """What rows may call a stream instead of its message's whole id; None where clew has not made that."""
    return _SIGN + message_id[-_LENGTH:] if is_message_id(message_id) else None


def ending_of(name: str) -> str | None:
    """How the id of the message ends whose stream is called so; None when it is the whole id."""
    return name[1:] if name.startswith(_SIGN) else None


def mark_crc(message_id: str, folded_through: int, name: str | None = None) -> int:
    """The checksum of a mark; ``name`` is what rows call the stream, where that is not its message's id."""
    text = f"{message_id} {folded_through}"
    return crc32((text if name is None or name == message_id else f"{text} {name}").encode())


class Mark(NamedTuple):
    """How far the parts hold a stream, as it is stored."""

    message_id: str
    session_id: str
    folded_through: int
    crc: int | None

    @property
    def name(self) -> str | None:
        """What rows call the stream; None when the mark is damaged, and nobody knows."""
        if self.crc is None or self.crc == mark_crc(self.message_id, self.folded_through):
            return self.message_id
        short = short_name(self.message_id)
        is_short = short is not None and self.crc == mark_crc(self.message_id, self.folded_through, short)
        return short if is_short else None

    @property
    def is_sound(self) -> bool:
        return self.name is not None


def to_mark(row: Sequence[Any]) -> Mark:
    """A mark from its row; one that holds something else than it should is a damaged one."""
    message_id, session_id, folded_through, crc = row
    if isinstance(message_id, str) and isinstance(folded_through, int):
        return Mark(message_id, session_id, folded_through, crc)
    return Mark(str(message_id), str(session_id), 0, -1)


def streams_by_name(marks: Iterable[Mark]) -> dict[str, str]:
    """The streams that have a sound mark, by what rows call them."""
    return {name: mark.message_id for mark in marks if (name := mark.name) is not None}


def messages_of(strays: Collection[str], marks: Mapping[str, Mark], ending: Ending) -> dict[str, list[str]]:
    """The messages that each of these names may be of, when no sound mark says whose it is.

    One that has a sound mark goes by the name that this says, so a stray is of another one; but a mark without a
    checksum, as older versions left them, says nothing of a name that was not there then.
    """
    found: dict[str, list[str]] = {name: [name] if ending_of(name) is None else [] for name in strays}
    ends = {end for name in strays if (end := ending_of(name)) is not None}
    for message_id in ending(ends) if ends else ():
        name = short_name(message_id)
        mark = marks.get(message_id)
        if name in found and (mark is None or mark.crc is None or not mark.is_sound):
            found[name].append(message_id)
    return found
