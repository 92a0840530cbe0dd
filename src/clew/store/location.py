"""Store URLs: which kind of store, and where. Nothing is opened here."""

from __future__ import annotations

from pathlib import Path

import msgspec

from clew.errors import InvalidInput, NotSupported

__all__ = ["Memory", "SqliteFile", "parse_url"]

_KNOWN = "sqlite:///relative.db, sqlite:////absolute.db or memory:"


class Memory(msgspec.Struct, frozen=True):
    """Nothing on disk."""


class SqliteFile(msgspec.Struct, frozen=True):
    """A SQLite file."""

    path: Path


def parse_url(url: str) -> Memory | SqliteFile:
    """What a store URL names."""
    if url == "memory:":
        return Memory()
    scheme, colon, rest = url.partition(":")
    if scheme == "sqlite":
        if not rest.startswith("///") or not rest[3:] or "\x00" in rest:
            raise InvalidInput(f"{url!r} names no file; write sqlite:///relative.db or sqlite:////absolute.db")
        return SqliteFile(Path(rest[3:]).expanduser())
    if colon and scheme in {"jsonl", "json", "postgresql", "postgres"}:
        raise NotSupported(f"this version of clew has no {scheme}: store; use {_KNOWN}")
    raise InvalidInput(f"{url!r} is not a store; use {_KNOWN}")
