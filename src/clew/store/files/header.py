"""The header: the facts about a session that is not in memory, and the note that saves reading its files for them.

A note is derived from the files and is only a cache. It is valid as long as the files are those it was made from; if it
is missing, unreadable or outdated, the session is read once.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from clew.convert import convert_json
from clew.store.files import folder
from clew.store.files.crc import verdict, with_check
from clew.store.memory.session_value import SessionValue
from clew.transcript.model_call import ModelCall
from clew.transcript.session import Session, Spend

__all__ = ["Header", "Note", "Notes", "header_of"]

_GRAIN_NS: Final = 20_000_000
"""The time within which two changes of a file may have the same timestamp."""

_DIGEST: Final = 8


class Header(msgspec.Struct, frozen=True):
    """``turns`` are the concatenated digests of its turns' ids; ``spend`` is that of its own calls; ``failed``: its
    newest turn failed."""

    session: Session
    spend: Spend
    turns: bytes
    blobs: tuple[str, ...]
    prompts: tuple[str, ...]
    failed: bool

    def may_hold(self, turn_id: str) -> bool:
        """Return whether the session may have this turn: a turn has the same digest."""
        wanted, at = _digest(turn_id), -1
        while (at := self.turns.find(wanted, at + 1)) >= 0:
            if at % _DIGEST == 0:
                return True
        return False


class Note(msgspec.Struct, frozen=True):
    """A header with the model calls, which are too many for memory, and the signature of the files."""

    signature: tuple[folder.Footprint, ...]
    header: Header
    calls: tuple[ModelCall, ...]


def header_of(value: SessionValue) -> Header:
    turns = b"".join(map(_digest, value.turns))
    return Header(
        value.session, value.spend, turns, tuple(value.blobs), tuple(sorted(value.prompts())), value.has_failed
    )


def _digest(turn_id: str) -> bytes:
    return blake2b(turn_id.encode(), digest_size=_DIGEST).digest()


class Notes:
    """The notes of a folder, a file for each session."""

    def __init__(self, root: Path) -> None:
        self._place = root / "clew" / "notes"
        self._text = str(self._place)

    def find(self, session_id: str, signature: tuple[folder.Footprint, ...]) -> Note | None:
        """Return the note of a session if its files have this signature."""
        try:
            data = folder.read(f"{self._text}/{session_id}.json") or b""
            note = convert_json(data, Note) if verdict(data[:-1]) == "whole" else None
        except (OSError, msgspec.MsgspecError, UnicodeError):
            return None
        return note if note is not None and note.signature == signature else None

    def write(self, note: Note) -> None:
        """Write a note, unless its files were written just now, when another change might not be detected."""
        newest = max((written_at for _, _, written_at in note.signature), default=0)
        if time.time_ns() - newest < _GRAIN_NS:
            return
        with contextlib.suppress(OSError):  # without it the session is read once more
            folder.make_folder(self._place)
            data = with_check(msgspec.json.encode(note)) + b"\n"
            folder.write_whole(self._path(note.header.session.id), data, sync=False)

    def forget(self, session_id: str) -> None:
        with contextlib.suppress(OSError):
            self._path(session_id).unlink(missing_ok=True)

    def tidy(self, there: Collection[str]) -> None:
        """Remove unfinished files of a process that died, and the notes of deleted sessions."""
        with contextlib.suppress(OSError):
            folder.remove_temporary(self._place)
        for name in folder.names_in(self._place):
            if name.removesuffix(".json") not in there:
                self.forget(name.removesuffix(".json"))

    def _path(self, session_id: str) -> Path:
        return self._place / f"{session_id}.json"
