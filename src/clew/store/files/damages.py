"""Damages: what is wrong with the sessions of a folder, as far as no human has accepted it."""

from __future__ import annotations

from collections.abc import Container
from zlib import crc32

import msgspec

from clew.store.base import Damage
from clew.store.files.codec import Loaded
from clew.store.files.shared import SharedFiles

__all__ = ["Damages", "unaccepted"]


class Damages:
    """By session, as it was when it was last read. What is accepted is an entry of the folder."""

    def __init__(self, shared: SharedFiles) -> None:
        self._shared = shared
        self._accepted: dict[str, int] = shared.load("accepted")
        self._found: dict[str, tuple[Damage, ...]] = {}

    def __bool__(self) -> bool:
        return any(self._found.values())

    def of(self, session_id: str) -> tuple[Damage, ...]:
        return self._found.get(session_id, ())

    def note(self, session_id: str, loaded: Loaded) -> None:
        self._found[session_id] = unaccepted(loaded, self._accepted)

    def forget(self, session_id: str) -> None:
        self._found.pop(session_id, None)

    @property
    def losses(self) -> tuple[Damage, ...]:
        found = (damage for damages in self._found.values() for damage in damages)
        return tuple(damage for damage in found if damage.id is not None and damage.id.startswith("loss-"))

    def accept(self, loss_id: str, at: int) -> None:
        """A human has accepted this loss: it is told no more."""
        self._shared.put("accepted", loss_id, at)
        self._accepted[loss_id] = at
        for session_id, damages in list(self._found.items()):
            self._found[session_id] = tuple(damage for damage in damages if damage.id != loss_id)


def unaccepted(loaded: Loaded, accepted: Container[str]) -> tuple[Damage, ...]:
    """What is wrong with a session, but for the losses that a human has accepted; each loss with its id.

    A session of which nothing reads has lost nothing yet: it is put back, or deleted.
    """
    if loaded.memo.damaged:
        return loaded.damages
    found = (
        msgspec.structs.replace(one, id=one.id or f"loss-{crc32(f'{one.session_id} {one.what}'.encode()):08x}")
        for one in loaded.damages
    )
    return tuple(one for one in found if one.id not in accepted)
