"""Store URLs: which kind of store, and where. Nothing is opened here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from clew.errors import InvalidInput, NotSupported

__all__ = ["Folder", "Location", "Memory", "SqliteFile", "lock_of", "owned_path", "parse_url"]

_KNOWN = "sqlite:///relative.db, sqlite:////absolute.db, jsonl:FOLDER, json:FOLDER or memory:"


class Memory(msgspec.Struct, frozen=True):
    """Nothing on disk."""


class SqliteFile(msgspec.Struct, frozen=True):
    """A SQLite file."""

    path: Path


class Folder(msgspec.Struct, frozen=True):
    """A folder of sessions in one of the two file formats."""

    kind: Literal["jsonl", "json"]
    path: Path


Location = Memory | SqliteFile | Folder


def parse_url(url: str) -> Location:
    """What a store URL names."""
    if url == "memory:":
        return Memory()
    scheme, colon, rest = url.partition(":")
    if scheme == "sqlite":
        if not rest.startswith("///") or not rest[3:] or "\x00" in rest:
            raise InvalidInput(f"{url!r} names no file; write sqlite:///relative.db or sqlite:////absolute.db")
        return SqliteFile(Path(rest[3:]).expanduser())
    if scheme in ("jsonl", "json") and colon:
        named = rest[3:] if rest.startswith("///") else rest
        if not named or "\x00" in named:
            raise InvalidInput(f"{url!r} names no folder; write {scheme}:FOLDER")
        return Folder("jsonl" if scheme == "jsonl" else "json", Path(named).expanduser())
    if colon and scheme in {"postgresql", "postgres"}:
        raise NotSupported(f"this version of clew has no {scheme}: store; use {_KNOWN}")
    raise InvalidInput(f"{url!r} is not a store; use {_KNOWN}")


def owned_path(folder: Path) -> Path:
    """What the owner of a folder of sessions holds the lock of: inside it, beside everything else that is clew's."""
    return folder / "clew" / "store"


def lock_of(location: Location) -> Path | None:
    """What the owner file of a store lies beside, whatever name it has here; None when it could have no owner."""
    if isinstance(location, Memory):
        return None
    path = Path(os.path.realpath(location.path))
    return owned_path(path) if isinstance(location, Folder) else path
