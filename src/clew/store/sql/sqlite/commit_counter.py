"""Counts acknowledged commits in a file next to the database, to detect a truncated write-ahead log.

SQLite treats a damaged log as if it ended at the damage. So every commit is numbered in the database, and its number is
noted in a small separate file before it is acknowledged. A database with fewer commits than were noted has lost some.
The file is not synced. It outlives a crash of the process; after a power failure only the number of the newest synced
commit counts, and that is noted only when the commit is on disk.

The notes form a ring in which the oldest is overwritten. Each note names a session of its commit, so that the sessions
with lost changes are known as far back as the ring goes.
"""

from __future__ import annotations

import logging
import os
import struct
import uuid
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from clew.platform.files import CLOEXEC, NOFOLLOW, pwrite, set_mode
from clew.store import boot_id
from clew.store.sql.lost_commits import Loss

__all__ = [
    "LOSS_CAUSE",
    "CommitCounter",
    "Note",
    "acknowledged_path",
    "boot_bytes",
    "find_loss",
    "notes_of",
    "read_notes",
]

log = logging.getLogger("clew.store")

LOSS_CAUSE: Final = "its write-ahead log was damaged or removed, or the file was replaced by an older copy"
"""The possible causes of a loss of commits, for messages."""
_NOTE: Final = struct.Struct("<4s16s16sQQH32s")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"clw1"
_SLOT: Final = 96
_SLOTS: Final = 256


class Note(NamedTuple):
    """A note that ``commit`` was acknowledged; ``synced`` is the newest commit that survives a power failure."""

    boot: bytes
    store: bytes
    commit: int
    synced: int
    sessions: int
    session_id: str


def acknowledged_path(path: Path) -> Path:
    return path.with_name(path.name + ".acked")


def boot_bytes() -> bytes:
    """Return the boot id as stored in notes; zeros where the system has none."""
    try:
        return uuid.UUID(boot_id.boot_id()).bytes
    except ValueError:
        return bytes(16)


class CommitCounter:
    """The writer of the notes, in the process that owns the store."""

    def __init__(self, path: Path, store_id: str) -> None:
        self._path = acknowledged_path(path)
        self._store = self.hash_store_id(store_id)
        self._boot = boot_bytes()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | CLOEXEC | NOFOLLOW, 0o600)
        set_mode(self._fd, 0o600)
        # Allocated in full, so that notes can still be written when the disk is full.
        if os.fstat(self._fd).st_size != _SLOT * _SLOTS:
            os.ftruncate(self._fd, 0)
            pwrite(self._fd, bytes(_SLOT * _SLOTS), 0)
        self._failed = False
        self.commit = self.synced = 0

    @staticmethod
    def hash_store_id(store_id: str) -> bytes:
        """Return the hash by which a note names its store."""
        return blake2b(store_id.encode(), digest_size=16).digest()

    def begin(self, commit: int, synced: int) -> None:
        """Clear the ring for a newly opened store with this many commits; its earlier notes were checked."""
        self.commit, self.synced = commit, synced
        pwrite(self._fd, bytes(_SLOT * _SLOTS), 0)
        self.note(commit, synced, ())

    def note(self, commit: int, synced: int, sessions: Sequence[str]) -> None:
        """Note a commit with one small write, before it is acknowledged."""
        named = (sessions[0] if sessions else "").encode()[:32]
        packed = _NOTE.pack(_MAGIC, self._boot, self._store, commit, synced, min(len(sessions), 0xFFFF), named)
        try:
            pwrite(self._fd, packed + _CRC.pack(crc32(packed)), _SLOT * (commit % _SLOTS))
        except OSError as error:
            if not self._failed:
                log.error("cannot write %s (%s): a loss of commits would not be detected", self._path, error)
            self._failed = True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def read_notes(path: Path) -> list[Note]:
    """Return the valid notes next to a database, oldest first."""
    try:
        data = acknowledged_path(path).read_bytes()
    except OSError:
        return []
    notes: list[Note] = []
    for at in range(0, len(data) - _NOTE.size - _CRC.size + 1, _SLOT):
        packed = data[at : at + _NOTE.size]
        if _CRC.unpack_from(data, at + _NOTE.size)[0] == crc32(packed) and packed.startswith(_MAGIC):
            _, boot, store, commit, synced, sessions, named = _NOTE.unpack(packed)
            notes.append(Note(boot, store, commit, synced, sessions, named.rstrip(b"\0").decode("ascii", "replace")))
    return sorted(notes, key=lambda note: note.commit)


def notes_of(notes: Sequence[Note], store_id: str) -> list[Note]:
    """Return the notes of this store; another store may have had the same path before."""
    return [note for note in notes if note.store == CommitCounter.hash_store_id(store_id)]


def find_loss(notes: Sequence[Note], store_id: str, held: int) -> Loss | None:
    """Return the loss of a store with ``held`` commits; None if all of its acknowledged commits are there."""
    own_notes = notes_of(notes, store_id)
    if not own_notes:
        return None
    newest = own_notes[-1]
    here = newest.boot == boot_bytes() and any(newest.boot)
    needed = newest.commit if here else max(note.synced for note in own_notes)
    if held >= needed:
        return None
    named = [note.session_id for note in own_notes if held < note.commit <= needed and note.session_id]
    return Loss(held, needed, tuple(dict.fromkeys(named)))
