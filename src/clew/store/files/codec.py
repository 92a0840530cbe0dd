"""The codec: the interface of a file format. Everything runs in the writer's thread."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple
from zlib import crc32

import orjson
from msgspec.structs import replace

from clew.store.base import Capabilities, Damage
from clew.store.files import folder
from clew.store.files.crc import with_check
from clew.store.files.session_value import Entries, SessionValue

__all__ = ["FORMAT_VERSION", "MISREAD", "Codec", "Entries", "Loaded", "Saving", "format_note", "with_loss_ids"]

FORMAT_VERSION: Final = 4
"""2: model calls, whose table an older clew treats as damage. 3: checks over the content, and messages of other
programs in their own form, which an older clew treats as damage, too. 4: snapshots, another such table."""
MISREAD: Final = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""Errors that reading a damaged value can raise."""


class Loaded(NamedTuple):
    """A session as loaded from its files. ``memo`` is the codec's state of the files."""

    value: SessionValue
    memo: Any
    damages: tuple[Damage, ...] = ()


class Saving(NamedTuple):
    """A unit to be written by ``persist``; ``done`` returns the memo of the files after that."""

    persist: Callable[[], None]
    done: Callable[[], Any]


class Codec(ABC):
    """One format of sessions under ``root/sessions``. ``memo`` is None for a session that a unit has just created."""

    kind: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def __init__(self, root: Path) -> None:
        self.sessions = root / "sessions"
        # Paths are built as text: for thousands of files, path objects would cost as much as the system calls.
        self._place = str(self.sessions)
        self.damaged = root / "clew" / "damaged"

    @abstractmethod
    def on_disk(self) -> list[str]:
        """Return the ids of all sessions in order."""

    @abstractmethod
    def files_of(self, session_id: str) -> tuple[Path, ...]:
        """Return the files of a session in the order in which they have to be read while another process writes."""

    @abstractmethod
    def load(self, session_id: str) -> Loaded | None: ...

    def signature(self, session_id: str) -> tuple[folder.Footprint, ...]:
        """Return a value that changes when the files do."""
        return tuple(folder.footprint(path) for path in self.files_of(session_id))

    def owned(self, session_id: str) -> tuple[tuple[int, ...], ...]:
        """Return a value by which the owner detects, before a write, that another program has changed the files."""
        return self.signature(session_id)

    @abstractmethod
    def plan(self, value: SessionValue, memo: Any, entries: Entries, *, sync: bool, power: bool) -> Saving | None:
        """Plan the write of a unit's changes; called while they are applied. ``sync``: the unit must survive a loss of
        power, ``power``: every unit must. ``done`` returns the new memo. None: the changes stay in memory for now."""

    def plan_copy(self, value: SessionValue, memo: Any, entries: Entries) -> Saving | None:
        """Plan the write of a portion of a session that no list shows before a later :meth:`plan`. None: all of it is
        written then."""
        return None

    def is_ahead(self, memo: Any) -> bool:
        """Return whether changes of a session were accepted and not written yet."""
        return False

    def ahead(self, memo: Any) -> Any:
        """Return the memo of files that have less than was accepted."""
        return memo

    def save(self, value: SessionValue, memo: Any) -> Saving | None:
        """Plan the write of changes that are only in memory; None if there are none."""
        return None

    @abstractmethod
    def mark(self, session_id: str, memo: Any) -> Any:
        """Return a JSON value by which :meth:`is_written` detects a later write of the session."""

    @abstractmethod
    def is_written(self, session_id: str, mark: Any) -> bool:
        """Return whether a unit of the session was written since ``mark``."""

    @abstractmethod
    def remove(self, session_id: str) -> None: ...

    def tidy(self, loaded: Loaded) -> tuple[Damage, ...]:
        """Update files that lag behind what was loaded; return the damage that remains. For the owner only."""
        return loaded.damages

    @abstractmethod
    def sweep(self) -> None:
        """Remove unfinished files of a process that died. For the owner only."""

    def copy(self, target: Path) -> None:
        """Copy every session into a folder, also while sessions are written."""
        folder.make_folder(target / "sessions")
        for session_id in self.on_disk():
            for path in self.files_of(session_id):
                data = folder.read(path)
                if data is not None:
                    into = target / path.relative_to(self.sessions.parent)
                    folder.make_folder(into.parent)
                    folder.write_whole(into, data, sync=False)


def format_note(kind: str) -> bytes:
    """Return the contents of ``format.json``, with a check, since one flipped bit could make it another version."""
    return with_check(orjson.dumps({"format": kind, "version": FORMAT_VERSION})) + b"\n"


def with_loss_ids(loaded: Loaded) -> tuple[Damage, ...]:
    """Return the damage of a session, each loss with the id by which it can be accepted."""
    if loaded.memo.damaged:
        return loaded.damages  # it cannot be read at all: it has to be restored or deleted
    return tuple(
        replace(one, id=one.id or f"loss-{crc32(f'{one.session_id} {one.what}'.encode()):08x}")
        for one in loaded.damages
    )
