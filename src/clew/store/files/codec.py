"""The codec: what a file store needs of a format. Loading and saving happen in threads, planning on the event loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, NamedTuple

import orjson

from clew.store.base import Capabilities, Damage
from clew.store.files import folder
from clew.store.files.crc import with_check
from clew.store.memory.session_value import SessionValue
from clew.transcript.session import Session

__all__ = ["FORMAT_VERSION", "MISREAD", "Codec", "Entries", "Loaded", "Saving", "format_note"]

FORMAT_VERSION: Final = 3
"""2: model calls. A clew that does not know their table takes it for damage. 3: checks over the content, and messages
of other programs in their own words, which an older clew takes for damage, too."""
MISREAD: Final = (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError)
"""What comes of reading something that is not as it was written."""

Entries = Mapping[tuple[str, Any], tuple[Any, Any]]
"""What a unit changed: by table and key, the entry before and after it."""


class Loaded(NamedTuple):
    """A session as its files have it. ``memo`` is what the codec remembers about them."""

    value: SessionValue
    memo: Any
    damages: tuple[Damage, ...] = ()


class Saving(NamedTuple):
    """A unit on its way to disk: ``persist`` runs in a thread, ``done`` on the event loop once it is durable."""

    persist: Callable[[], None]
    done: Callable[[], Any]


class Codec(ABC):
    """One format, of the sessions under ``root/sessions``. ``memo`` is None for a session that a unit has just made."""

    kind: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    def __init__(self, root: Path) -> None:
        self.sessions = root / "sessions"
        # Where thousands of files are looked at, paths are put together as text: objects would cost as much as looking.
        self._place = str(self.sessions)
        self.damaged = root / "clew" / "damaged"

    @abstractmethod
    def on_disk(self) -> list[str]:
        """The ids of all sessions there are, in order."""

    @abstractmethod
    def files_of(self, session_id: str) -> tuple[Path, ...]:
        """The files of a session, in the order in which they have to be read while somebody writes."""

    @abstractmethod
    def load(self, session_id: str) -> Loaded | None: ...

    @abstractmethod
    def head(self, session_id: str) -> Session | None:
        """The session with what it has spent itself, as far as a list needs it: from the file that says so, or from
        the beginning of it. None where that says too little, and the session has to be loaded."""

    @abstractmethod
    def headed(self, session_id: str) -> folder.Footprint:
        """What the file looks like that ``head`` reads."""

    def signature(self, session_id: str) -> tuple[folder.Footprint, ...]:
        """Something that is different once the files are."""
        return tuple(folder.footprint(path) for path in self.files_of(session_id))

    def owned(self, session_id: str) -> tuple[tuple[int, ...], ...]:
        """What the owner goes by when it writes on: other than it left it, somebody else has been there."""
        return self.signature(session_id)

    @abstractmethod
    def plan(self, value: SessionValue, memo: Any, entries: Entries, *, sync: bool, power: bool) -> Saving | None:
        """How the changes reach the disk; called while they are applied. ``sync``: the unit asked for power to be
        survived, ``power``: every unit does. ``done`` gives the new memo. None: they stay in memory for now."""

    def save(self, value: SessionValue, memo: Any) -> Saving | None:
        """What memory alone holds, written down; None when there is nothing."""
        return None

    @abstractmethod
    def mark(self, session_id: str, memo: Any) -> Any:
        """Something that can be kept as JSON, by which it is seen later whether the session was written since."""

    @abstractmethod
    def is_written(self, session_id: str, mark: Any) -> bool:
        """Whether a unit of the session has reached the disk since ``mark``."""

    @abstractmethod
    def remove(self, session_id: str) -> None: ...

    def tidy(self, loaded: Loaded) -> tuple[Damage, ...]:
        """Bring files that lag in line with what was loaded; what is wrong still. For the owner only."""
        return loaded.damages

    @abstractmethod
    def sweep(self) -> None:
        """Remove what a process that died had begun. For the owner only."""

    def copy(self, target: Path) -> None:
        """Copy every session into a folder, also while somebody writes."""
        folder.make_folder(target / "sessions")
        for session_id in self.on_disk():
            for path in self.files_of(session_id):
                data = folder.read(path)
                if data is not None:
                    into = target / path.relative_to(self.sessions.parent)
                    folder.make_folder(into.parent)
                    folder.write_whole(into, data, sync=False)


def format_note(kind: str) -> bytes:
    """What a folder says of itself, with a check: by one bit it could be of another version."""
    return with_check(orjson.dumps({"format": kind, "version": FORMAT_VERSION})) + b"\n"
