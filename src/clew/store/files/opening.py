"""Opening a folder of sessions: ownership and checks of its format."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import msgspec
import orjson

from clew.clock import Clock, SystemClock
from clew.errors import SchemaTooNew, StoreGone, StoreUnavailable
from clew.ids import Mint
from clew.store.base import Store
from clew.store.disk import translated
from clew.store.file_lock import find_file
from clew.store.files import folder
from clew.store.files.codec import FORMAT_VERSION, Codec, format_note
from clew.store.files.crc import verdict
from clew.store.files.json_file import JsonCodec
from clew.store.files.jsonl import JsonlCodec
from clew.store.files.search_copy import OpenCopy
from clew.store.files.store import FileStore
from clew.store.location import owned_path
from clew.store.owner import refuse_network_file_system, take_ownership
from clew.store.sql.sqlite.connection import has_fts5
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite

__all__ = ["FilesOptions", "open_files"]

_CODECS: Final[dict[str, Callable[[Path], Codec]]] = {"jsonl": JsonlCodec, "json": JsonCodec}


class FilesOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a store. ``read_only`` takes no owner lock and never writes."""

    read_only: bool = False
    every_commit_full: bool = False


async def open_files(
    kind: Literal["jsonl", "json"],
    path: Path,
    options: FilesOptions | None = None,
    *,
    clock: Clock | None = None,
    mint: Mint | None = None,
) -> FileStore:
    """Open a folder of sessions, and create it unless it is opened for reading. Every session is read once."""
    clock = clock or SystemClock()
    return await asyncio.to_thread(_open, kind, path, options or FilesOptions(), clock, mint or Mint(clock))


def _open(kind: str, path: Path, options: FilesOptions, clock: Clock, mint: Mint) -> FileStore:
    path = find_file(path)
    if path.exists() and not path.is_dir():
        raise StoreUnavailable(f"{path} is a file; a {kind}: store is a folder")
    refuse_network_file_system(path)
    codec = _CODECS[kind](path)
    with translated(path):
        if options.read_only and not path.is_dir():
            raise StoreUnavailable(f"there is no store at {path}")
        _check_format(kind, path)
        if options.read_only:
            return FileStore(path, codec, options.every_commit_full, None, clock, mint, _search_by(clock, mint))
        folder.make_folder(path / "sessions")
        folder.make_folder(path / "clew")
        folders = (path / "sessions", path / "clew")
        lock = take_ownership(path, owned_path(path), clock.now_ms(), folders=folders)
        try:
            note = path / "clew" / "format.json"
            if folder.read(note) != format_note(kind):
                folder.write_whole(note, format_note(kind), sync=True)
            store = FileStore(path, codec, options.every_commit_full, lock, clock, mint, _search_by(clock, mint))
            store.take_stock()
            return store
        except BaseException:
            lock.release()
            raise


def _search_by(clock: Clock, mint: Mint) -> OpenCopy | None:
    """Return the function that opens the search copy; None if SQLite lacks FTS5."""

    async def open_copy(path: Path, read_only: bool) -> Store:
        return await open_sqlite(path, SqliteOptions(read_only=read_only), clock=clock, mint=mint)

    return open_copy if has_fts5() else None


def _check_format(kind: str, path: Path) -> None:
    """Refuse a folder of another format before it is changed."""
    data = folder.read(path / "clew" / "format.json")
    if data is None:
        return
    if not (path / "sessions").is_dir():
        raise StoreGone(
            f"{path / 'sessions'} is gone, and clew/format.json beside it says that there was a store; "
            f"bring it back, or remove {path} to begin a new one"
        )
    found, version = _read_note(path, data)
    if found != kind:
        raise StoreUnavailable(f"{path} holds a {found}: store; open it as {found}:{path}")
    if version > FORMAT_VERSION:
        raise SchemaTooNew(f"{path} was written by a newer clew (format {version} of {FORMAT_VERSION}); upgrade clew")


def _read_note(path: Path, data: bytes) -> tuple[str, int]:
    """Return the kind and the version of a folder. A damaged note is refused, since all writes depend on it."""
    try:
        known = orjson.loads(data)
        # Notes of the first two versions have no check and only these two keys. The line end is ignored: programs that
        # copy folders between systems may change it.
        old = known.keys() == {"format", "version"} and known["version"] in (1, 2)
        is_whole = old or verdict(data.rstrip(b" \t\r\n")) == "whole"
        found, version = known["format"], known["version"]
    except (ValueError, KeyError, TypeError, AttributeError):
        is_whole, found, version = False, None, None
    if not is_whole or found not in _CODECS or type(version) is not int or version < 1:
        raise StoreUnavailable(
            f"{path} does not say what it holds: clew/format.json is not what was written; "
            "bring it back from a backup, or remove it if the last clew that wrote to this store was of this version"
        )
    return found, version
