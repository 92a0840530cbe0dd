"""The index: the files of the last saved state and how they looked when they were read, in git's own format.

clew writes it and ``git diff-files`` compares it with the workspace, which is several times as fast as Python. A file
is entered with its times only if it had been left alone for two seconds when it was read; without them git reports it
each time, and clew reads it again. So a change within one tick of a clock is never missed. What clew knows besides is
an extension of the file, so that both are replaced in one step.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Final

import msgspec

from clew.snapshots.files import SavedFile
from clew.snapshots.git import EMPTY_TREE, write_private

__all__ = ["Index", "entry_of", "mode_and_name", "read_index", "size_of", "write_index"]

_ENTRY: Final = struct.Struct(">10I20sH")
_HEADER: Final = struct.Struct(">4sII")
_EXTENSION: Final = b"CLEW"
_PADDING: Final = [b"\0" * (8 - rest) for rest in range(8)]
_WORD: Final = 0xFFFF_FFFF


class _State(msgspec.Struct, frozen=True):
    tree: str
    folders: str
    rules: str
    total_bytes: int


class Index(msgspec.Struct):
    """The last saved state. ``folders`` names the list of empty folders, ``rules`` is a digest of what is ignored."""

    entries: dict[bytes, bytes] = {}
    """The fixed part of each entry, by path."""
    tree: str = EMPTY_TREE
    folders: str = ""
    rules: str = ""
    total_bytes: int = 0


def entry_of(path: bytes, file: SavedFile, name: str) -> bytes:
    times = (0,) * 6
    owner = (0, 0)
    if (status := file.status) is not None:
        mtime, ctime = divmod(status.st_mtime_ns, 10**9), divmod(status.st_ctime_ns, 10**9)
        times = (*ctime, *mtime, status.st_dev, status.st_ino)
        owner = (status.st_uid, status.st_gid)
    fields = (*(one & _WORD for one in times), file.mode, *(one & _WORD for one in owner), len(file.data))
    return _ENTRY.pack(*fields, bytes.fromhex(name), min(len(path), 0xFFF))


def size_of(entry: bytes) -> int:
    return int.from_bytes(entry[36:40])


def mode_and_name(entry: bytes) -> tuple[int, str]:
    """Return the mode of an entry and the name of its content."""
    return int.from_bytes(entry[24:28]), entry[40:60].hex()


def read_index(path: Path) -> Index:
    """Return the index; an empty one if there is none, or if it is damaged."""
    try:
        data = path.read_bytes()
        if hashlib.sha1(data[:-20], usedforsecurity=False).digest() != data[-20:]:
            return Index()
        _, _, count = _HEADER.unpack_from(data)
        entries = {}
        offset = _HEADER.size
        for _ in range(count):
            start, offset = offset, data.index(0, offset + _ENTRY.size)
            entries[data[start + 62 : offset]] = data[start : start + 62]
            offset = start + (offset - start + 8 & ~7)
        state = msgspec.json.decode(data[offset + 8 : -20], type=_State)
    except (FileNotFoundError, ValueError, struct.error):
        return Index()
    return Index(entries, state.tree, state.folders, state.rules, state.total_bytes)


def write_index(path: Path, index: Index) -> None:
    state = msgspec.json.encode(_State(index.tree, index.folders, index.rules, index.total_bytes))
    pieces = [_HEADER.pack(b"DIRC", 2, len(index.entries))]
    entries = index.entries
    for name in sorted(entries):
        pieces += entries[name], name, _PADDING[(62 + len(name)) % 8]
    pieces += _EXTENSION, len(state).to_bytes(4), state
    data = b"".join(pieces)
    write_private(path, data + hashlib.sha1(data, usedforsecurity=False).digest())
