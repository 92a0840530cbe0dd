"""The codec: what a file store needs of a format. Loading and saving happen in threads, planning on the event loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import orjson

from clew.store.base import Capabilities, Damage
from clew.store.memory.session_value import SessionValue

__all__ = ["FORMAT_VERSION", "Codec", "Entries", "Loaded", "Saving", "format_mark"]

FORMAT_VERSION: Final = 1

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


class Codec(Protocol):
    """One format. ``memo`` is None for a session that a unit has just made."""

    kind: str
    capabilities: Capabilities
    evicts_released: bool

    def on_disk(self) -> list[str]:
        """The ids of all sessions there are, in order."""
        ...

    def load(self, session_id: str) -> Loaded | None: ...

    def signature(self, session_id: str) -> object:
        """Something that is different once the files are."""
        ...

    def mark(self, session_id: str) -> object:
        """What the owner goes by when it writes on: other than it left it, somebody else has been there."""
        ...

    def plan(self, value: SessionValue, memo: Any, entries: Entries, *, sync: bool, power: bool) -> Saving | None:
        """How the changes reach the disk; called while they are applied. ``sync``: the unit asked for power to be
        survived, ``power``: every unit does. ``done`` gives the new memo. None: they stay in memory for now."""
        ...

    def save(self, value: SessionValue, memo: Any) -> Saving | None:
        """What memory alone holds, written down; None when there is nothing."""
        ...

    def remove(self, session_id: str) -> None: ...

    def tidy(self, loaded: Loaded) -> tuple[Damage, ...]:
        """Bring files that lag in line with what was loaded; what is wrong still. For the owner only."""
        ...

    def sweep(self) -> None:
        """Remove what a process that died had begun. For the owner only."""
        ...

    def copy(self, target: Path) -> None:
        """Copy every session into a folder, also while somebody writes."""
        ...


def format_mark(kind: str) -> bytes:
    """What a folder says of itself."""
    return orjson.dumps({"format": kind, "version": FORMAT_VERSION}) + b"\n"
