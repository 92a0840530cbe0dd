"""Store URLs: which kind of store, and where. Nothing is opened here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from clew.errors import InvalidInput

__all__ = ["Folder", "Location", "Memory", "PostgresDatabase", "SqliteFile", "lock_of", "owned_path", "parse_url"]

_KNOWN = "sqlite:///relative.db, sqlite:////absolute.db, postgresql://…, jsonl:FOLDER, json:FOLDER or memory:"


class Memory(msgspec.Struct, frozen=True):
    """Nothing on disk."""


class SqliteFile(msgspec.Struct, frozen=True):
    """A SQLite file."""

    path: Path


class Folder(msgspec.Struct, frozen=True):
    """A folder of sessions in one of the two file formats."""

    kind: Literal["jsonl", "json"]
    path: Path


class PostgresDatabase(msgspec.Struct, frozen=True):
    """A database of a PostgreSQL server, by an address that may hold a password."""

    url: str


Location = Memory | SqliteFile | Folder | PostgresDatabase


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
    if scheme in ("postgresql", "postgres"):
        if not rest.startswith("//") or "\x00" in rest:
            raise InvalidInput("a PostgreSQL store is written postgresql://user@host/database")
        return PostgresDatabase(url)
    # A word that is misspelt may stand before a password.
    shown = f"{scheme}://…@{url.rpartition('@')[2]}" if "@" in url else url
    raise InvalidInput(f"{shown!r} is not a store; use {_KNOWN}")


def owned_path(folder: Path) -> Path:
    """What the owner of a folder of sessions holds the lock of: inside it, beside everything else that is clew's."""
    return folder / "clew" / "store"


def lock_of(location: Location) -> Path | None:
    """What the owner file of a store lies beside, whatever name it has here; None when it could have no owner."""
    if isinstance(location, Memory | PostgresDatabase):
        return None
    path = Path(os.path.realpath(location.path))
    return owned_path(path) if isinstance(location, Folder) else path
