"""The index: the files of the last saved state and how they looked when they were read, in git's own format.

clew writes it and ``git diff-files`` compares it with the workspace, which is several times as fast as Python. A file
is entered with its times only if it had been left alone for two seconds when it was read; without them git reports it
each time, and clew reads it again. So a change within one tick of a clock is never missed. What clew knows besides is
an extension of the file, so that both are replaced in one step.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Final

import msgspec

from clew.convert import convert
from clew.snapshots.files import SavedFile
from clew.snapshots.git import EMPTY_TREE

__all__ = ["Index", "IndexState", "entry_of", "mode_and_name", "read_index", "size_of", "with_parents"]

_ENTRY: Final = struct.Struct(">10I20sH")
_HEADER: Final = struct.Struct(">4sII")
_EXTENSION: Final = b"CLEW"
_PADDING: Final = [b"\0" * (8 - rest) for rest in range(8)]
_WORD: Final = 0xFFFF_FFFF


class IndexState(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The last saved state, but for its files."""

    tree: str = EMPTY_TREE
    folders: str = ""
    """The name of the list of empty folders."""
    rules: str = ""
    """A digest of what is ignored."""
    total_bytes: int = 0
    user_index: str = ""
    """How the index of the user's repository looked, and below the ignored files that it has."""
    forced: list[bytes] = []
    parents: list[bytes] = []
    """The folders that have files."""


class Index:
    """The files of the last saved state, by path, each with the offset of its entry, and the rest of the state."""

    def __init__(self, data: bytes = b"", state: IndexState | None = None) -> None:
        self._data = data
        self.state = state or IndexState()
        self.offsets: dict[bytes, int] = {}
        self._end = 0
        if not data:
            return
        offset = _HEADER.size
        offsets, find = self.offsets, data.index
        for _ in range(_HEADER.unpack_from(data)[2]):
            end = find(0, offset + 62)
            offsets[data[offset + 62 : end]] = offset
            offset += (end - offset + 8) & -8
        self._end = offset
        self.state = convert(msgspec.msgpack.decode(data[offset + 8 : -20]), IndexState)

    def entry(self, path: bytes) -> bytes | None:
        """Return the fixed part of an entry."""
        offset = self.offsets.get(path)
        return None if offset is None else self._data[offset : offset + 62]

    def with_changes(self, removed: Set[bytes], updated: Mapping[bytes, bytes], state: IndexState) -> bytes:
        """Return the file of the next state."""
        if self._data and not removed and updated.keys() <= self.offsets.keys():
            # The entries stay where they are.
            entries = bytearray(self._data[: self._end])
            for path, entry in updated.items():
                entries[self.offsets[path] : self.offsets[path] + 62] = entry
            pieces = [bytes(entries)]
        else:
            names = sorted((self.offsets.keys() - removed) | updated.keys())
            pieces = [_HEADER.pack(b"DIRC", 2, len(names))]
            for name in names:
                pieces += updated.get(name) or self.entry(name) or b"", name, _PADDING[(62 + len(name)) % 8]
            state.parents = sorted(with_parents(name.rpartition(b"/")[0] for name in names))
        extension = msgspec.msgpack.encode(state)
        data = b"".join([*pieces, _EXTENSION, len(extension).to_bytes(4), extension])
        return data + hashlib.sha1(data, usedforsecurity=False).digest()


def entry_of(path: bytes, file: SavedFile, name: str) -> bytes:
    times = (0,) * 6
    owner = (0, 0)
    if (status := file.status) is not None:
        mtime, ctime = divmod(status.st_mtime_ns, 10**9), divmod(status.st_ctime_ns, 10**9)
        times = (*ctime, *mtime, status.st_dev, status.st_ino)
        owner = (status.st_uid, status.st_gid)
    fields = (*(one & _WORD for one in times), file.mode, *(one & _WORD for one in owner), len(file.data))
    return _ENTRY.pack(*fields, bytes.fromhex(name), min(len(path), 0xFFF))


def size_of(entry: bytes | None) -> int:
    return 0 if entry is None else int.from_bytes(entry[36:40])


def mode_and_name(entry: bytes) -> tuple[int, str]:
    """Return the mode of an entry and the name of its content."""
    return int.from_bytes(entry[24:28]), entry[40:60].hex()


def read_index(path: Path) -> Index:
    """Return the index; an empty one if there is none, or if it is damaged."""
    try:
        data = path.read_bytes()
        if hashlib.sha1(data[:-20], usedforsecurity=False).digest() != data[-20:]:
            return Index()
        return Index(data)
    except (FileNotFoundError, ValueError, struct.error, msgspec.DecodeError):
        return Index()


def with_parents(folders: Iterable[bytes]) -> set[bytes]:
    """Return the folders and those above them, without the root."""
    found: set[bytes] = set()
    for folder in set(folders):
        while folder and folder not in found:
            found.add(folder)
            folder = folder.rpartition(b"/")[0]
    return found
