"""What was acknowledged, noted beside the database, so that a write-ahead log that lost its end is noticed.

SQLite takes a damaged log for one that ends there. So every commit is numbered in the database, and after each one,
before anybody is told, its number is noted in a small file of its own. A database that holds less than was noted has
lost something. The file is not synced: it outlives the process, and after a loss of power only the number of the last
synced commit counts, which was noted when the disk had it already.

The notes are a ring, one written over the oldest. Each says which session its commit was for, so that what is missing
can be named as far as the ring goes back.
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

from clew.store import boot
from clew.store.sql.losses import Loss

__all__ = ["LOST_BY", "Acknowledged", "Note", "acknowledged_path", "boot_bytes", "find_loss", "notes_of", "read_notes"]

log = logging.getLogger("clew.store")

LOST_BY: Final = "its write-ahead log was damaged or taken away, or an older copy was put in its place"
"""What a database can lose commits by."""
_NOTE: Final = struct.Struct("<4s16s16sQQH32s")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"clw1"
_SLOT: Final = 96
_SLOTS: Final = 256


class Note(NamedTuple):
    """Commit ``commit`` was acknowledged; ``synced`` is the newest that a loss of power cannot take."""

    boot: bytes
    store: bytes
    commit: int
    synced: int
    sessions: int
    session_id: str


def acknowledged_path(path: Path) -> Path:
    return path.with_name(path.name + ".acked")


def boot_bytes() -> bytes:
    """This boot as notes hold it; nothing but zeros where the system does not say."""
    try:
        return uuid.UUID(boot.boot_id()).bytes
    except ValueError:
        return bytes(16)


class Acknowledged:
    """The notes of the one process that writes the store."""

    def __init__(self, path: Path, store_id: str) -> None:
        self._path = acknowledged_path(path)
        self._store = self.name_of(store_id)
        self._boot = boot_bytes()
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        os.fchmod(self._fd, 0o600)
        # Room for all of it at once: a disk that fills up later must not stop the notes.
        if os.fstat(self._fd).st_size != _SLOT * _SLOTS:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, bytes(_SLOT * _SLOTS), 0)
        self._failed = False
        self.commit = self.synced = 0

    @staticmethod
    def name_of(store_id: str) -> bytes:
        """By what a note says whose it is."""
        return blake2b(store_id.encode(), digest_size=16).digest()

    def begin(self, commit: int, synced: int) -> None:
        """The store is open and holds this much; what was noted before is settled."""
        self.commit, self.synced = commit, synced
        os.pwrite(self._fd, bytes(_SLOT * _SLOTS), 0)
        self.note(commit, synced, ())

    def note(self, commit: int, synced: int, sessions: Sequence[str]) -> None:
        """One small write, to be made before anybody is told of the commit."""
        named = (sessions[0] if sessions else "").encode()[:32]
        packed = _NOTE.pack(_MAGIC, self._boot, self._store, commit, synced, min(len(sessions), 0xFFFF), named)
        try:
            os.pwrite(self._fd, packed + _CRC.pack(crc32(packed)), _SLOT * (commit % _SLOTS))
        except OSError as error:
            if not self._failed:
                log.error("%s cannot be written (%s): a loss would not be noticed", self._path, error)
            self._failed = True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def read_notes(path: Path) -> list[Note]:
    """The notes beside a database that read, oldest first."""
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
    """Those of this store: another one may have lain here before."""
    return [note for note in notes if note.store == Acknowledged.name_of(store_id)]


def find_loss(notes: Sequence[Note], store_id: str, held: int) -> Loss | None:
    """What was acknowledged of this store beyond what it holds."""
    ours = notes_of(notes, store_id)
    if not ours:
        return None
    newest = ours[-1]
    here = newest.boot == boot_bytes() and any(newest.boot)
    needed = newest.commit if here else max(note.synced for note in ours)
    if held >= needed:
        return None
    named = [note.session_id for note in ours if held < note.commit <= needed and note.session_id]
    return Loss(held, needed, tuple(dict.fromkeys(named)))
