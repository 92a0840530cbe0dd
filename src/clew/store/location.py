"""Store URLs: the kind of a store and its location. Opens nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

from clew.errors import InvalidInput

__all__ = ["Folder", "Location", "Memory", "PostgresDatabase", "SqliteFile", "lock_of", "owned_path", "parse_url"]

_KNOWN = "sqlite:///relative.db, sqlite:////absolute.db, postgresql://…, jsonl:FOLDER, json:FOLDER or memory:"


class Memory(msgspec.Struct, frozen=True):
    """A store in memory only."""


class SqliteFile(msgspec.Struct, frozen=True):
    """A SQLite file."""

    path: Path


class Folder(msgspec.Struct, frozen=True):
    """A folder of sessions in one of the two file formats."""

    kind: Literal["jsonl", "json"]
    path: Path


class PostgresDatabase(msgspec.Struct, frozen=True):
    """A database of a PostgreSQL server; its URL may contain a password."""

    url: str


Location = Memory | SqliteFile | Folder | PostgresDatabase


def parse_url(url: str) -> Location:
    """Return the location that a store URL names."""
    if url == "memory:":
        return Memory()
    scheme, colon, rest = url.partition(":")
    if scheme == "sqlite":
        if not rest.startswith("///") or not rest[3:] or "\x00" in rest:
            raise InvalidInput(f"{url!r} names no file; use sqlite:///relative.db or sqlite:////absolute.db")
        return SqliteFile(Path(rest[3:]).expanduser())
    if scheme in ("jsonl", "json") and colon:
        folder = rest[3:] if rest.startswith("///") else rest
        if not folder or "\x00" in folder:
            raise InvalidInput(f"{url!r} names no folder; use {scheme}:FOLDER")
        return Folder("jsonl" if scheme == "jsonl" else "json", Path(folder).expanduser())
    if scheme in ("postgresql", "postgres"):
        if not rest.startswith("//") or "\x00" in rest:
            raise InvalidInput("invalid PostgreSQL URL; use postgresql://user@host/database")
        return PostgresDatabase(url)
    # A misspelt scheme may precede a password.
    shown = f"{scheme}://…@{url.rpartition('@')[2]}" if "@" in url else url
    raise InvalidInput(f"{shown!r} is not a store; use {_KNOWN}")


def owned_path(folder: Path) -> Path:
    """Return the path that the owner of a folder of sessions locks, inside it with the rest of clew's files."""
    return folder / "clew" / "store"


def lock_of(location: Location) -> Path | None:
    """Return the real path that a store's owner file is next to; None for stores that have no owner."""
    if isinstance(location, Memory | PostgresDatabase):
        return None
    path = Path(os.path.realpath(location.path))
    return owned_path(path) if isinstance(location, Folder) else path
