"""Maintenance of a folder of sessions: its damage, except accepted losses, and copies of it."""

from __future__ import annotations

import shutil
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from zlib import crc32

from msgspec.structs import replace

from clew.errors import InvalidInput
from clew.store.base import Damage
from clew.store.disk import translated
from clew.store.files import folder
from clew.store.files.codec import Codec, Loaded, format_note
from clew.store.files.header import Notes, header_of
from clew.store.files.search_copy import searched
from clew.store.files.shared import SHARED, SharedFiles
from clew.store.memory.tables import EventKey
from clew.triggers.values.ledger import LedgerEvent

__all__ = ["Damages", "copy_folder", "left_event", "look_of", "warm_caches"]


class Damages:
    """The damage of each session when it was last read. Accepted losses are stored in the folder."""

    def __init__(self, shared: SharedFiles) -> None:
        self._shared = shared
        self._accepted: dict[str, int] = shared.load("accepted")
        self._found: dict[str, tuple[Damage, ...]] = {}

    def __bool__(self) -> bool:
        return any(self._found.values())

    def of(self, session_id: str) -> tuple[Damage, ...]:
        return self._found.get(session_id, ())

    def note(self, session_id: str, loaded: Loaded) -> None:
        self._found[session_id] = _unaccepted(loaded, self._accepted)

    def forget(self, session_id: str) -> None:
        self._found.pop(session_id, None)

    @property
    def losses(self) -> tuple[Damage, ...]:
        # A copy, since without the lock a thread may be reading the sessions.
        found = (damage for damages in [*self._found.values()] for damage in damages)
        return tuple(damage for damage in found if damage.id is not None and damage.id.startswith("loss-"))

    def accept(self, loss_id: str, at: int) -> None:
        """Accept a loss, so that it is not reported any more."""
        self._shared.put("accepted", loss_id, at)
        self._accepted[loss_id] = at
        for session_id, damages in list(self._found.items()):
            self._found[session_id] = tuple(damage for damage in damages if damage.id != loss_id)


def _unaccepted(loaded: Loaded, accepted: Container[str]) -> tuple[Damage, ...]:
    """Return the damage of a session, each loss with its id, without accepted losses.

    A session that cannot be read at all has no losses to accept: it has to be restored or deleted.
    """
    if loaded.memo.damaged:
        return loaded.damages
    found = (
        replace(one, id=one.id or f"loss-{crc32(f'{one.session_id} {one.what}'.encode()):08x}")
        for one in loaded.damages
    )
    return tuple(one for one in found if one.id not in accepted)


def look_of(codec: Codec, session_id: str) -> str:
    """Return a short digest of the signature of a session's files."""
    return f"{crc32(repr(codec.signature(session_id)).encode()):08x}"


def warm_caches(path: Path, codec: Codec) -> tuple[Sequence[Damage], dict[str, tuple[str, dict[str, str]]]]:
    """Return all damage and missing files. It reads the files, not the cached sessions.

    Also return, for each session, the digest of its files and the seals of messages that a search must find.
    """
    found: list[Damage] = []
    known: dict[str, tuple[str, dict[str, str]]] = {}
    shared, notes = SharedFiles(path), Notes(path)
    with translated(path):
        blobs = {sha: shared.read_blob(sha) is not None for sha in shared.load("blobs")}
        tables = {name: shared.load(name) for name in SHARED.keys() - {"blobs"}}
        for session_id in codec.on_disk():
            signature, look = codec.signature(session_id), look_of(codec, session_id)
            loaded = codec.load(session_id)
            if loaded is None:
                continue  # removed since it was listed
            known[session_id] = (look, searched(loaded.value))
            note = notes.find(session_id, signature)
            if note is not None and (note.header, note.calls) != (header_of(loaded.value), loaded.value.all_calls()):
                what = "its note does not say what its files say; remove clew/notes, which is made again"
                found.append(Damage(what, session_id))
            found += _unaccepted(loaded, tables["accepted"])
            missing = [sha for sha in loaded.value.blobs if sha not in blobs]
            found += [Damage("a file that it names is missing", session_id, sha) for sha in missing]
    return (*found, *(Damage(what) for what in shared.unread)), known


def left_event(events: Mapping[EventKey, LedgerEvent], messages: Mapping[str, Container[str]]) -> EventKey | None:
    """Return the event whose message a process that died did not write; ``messages`` are those of each session.

    An event is written before its message, and after all other events, so it can only be the newest. If there are no
    sessions at all, they are missing and not its message, unless it is the first event. An event without data belongs
    to a deleted session.
    """
    if not events or (not messages and len(events) > 1):
        return None
    key, event = max(events.items(), key=lambda one: one[1].seq)
    is_complete = event.message_id is None or not event.data or event.message_id in messages.get(event.session_id, ())
    return None if is_complete else key


def copy_folder(codec: Codec, shared: SharedFiles, target: Path) -> None:
    """Copy the store to ``target``, which must not exist yet."""
    if target.exists():
        raise InvalidInput(f"{target} is already there; name a new folder")
    making = target.with_name(f"{target.name}.making")
    with translated(target):
        try:
            shutil.rmtree(making, ignore_errors=True)
            folder.make_folder(making / "clew")
            codec.copy(making)
            shared.copy(making)
            folder.write_whole(making / "clew" / "format.json", format_note(codec.kind), sync=True)
            making.rename(target)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise
