"""Opening a folder of sessions: ownership and checks of its format."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import sqlite3
from pathlib import Path
from typing import Final, Literal

import msgspec
import orjson

from clew.clock import Clock, SystemClock
from clew.errors import NotSupported, SchemaTooNew, StorageFull, StoreGone, StoreUnavailable
from clew.ids import Mint
from clew.platform import WINDOWS
from clew.store.disk import translated
from clew.store.file_lock import find_file
from clew.store.files import folder
from clew.store.files.cache_file import CacheFile
from clew.store.files.codec import FORMAT_VERSION, Codec, format_note
from clew.store.files.crc import verdict
from clew.store.files.folder_watch import FolderWatch
from clew.store.files.shared import SharedFiles
from clew.store.files.store import FileStore
from clew.store.files.writer import FileTransactions
from clew.store.location import owned_path
from clew.store.owner import OwnerLock, refuse_network_file_system, take_ownership
from clew.store.sql.inbox import Inbox
from clew.store.sql.line_cache import LineCache
from clew.store.sql.sqlite.connection import is_broken, translate
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.sqlite.writer import ThreadedWriter

__all__ = ["FilesOptions", "open_files"]

log = logging.getLogger("clew.files")

_KINDS: Final = ("jsonl", "json")


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
    """Open a folder of sessions, and create it unless it is opened for reading. Changed files are read again."""
    if WINDOWS:
        raise NotSupported("jsonl: and json: are off on Windows, which cannot lock a folder; use sqlite:")
    clock = clock or SystemClock()
    return await asyncio.to_thread(_open, kind, path, options or FilesOptions(), clock, mint or Mint(clock))


def _open(kind: str, path: Path, options: FilesOptions, clock: Clock, mint: Mint) -> FileStore:
    path = find_file(path)
    if path.exists() and not path.is_dir():
        raise StoreUnavailable(f"{path} is a file; a {kind}: store is a folder")
    refuse_network_file_system(path)
    codec = _make_codec(kind, path)
    with translated(path), contextlib.ExitStack() as undo:
        if options.read_only and not path.is_dir():
            raise StoreUnavailable(f"there is no store at {path}")
        _check_format(kind, path)
        lock = None
        if not options.read_only:
            folder.make_folder(path / "sessions")
            folder.make_folder(path / "clew")
            folders = (path / "sessions", path / "clew")
            lock = take_ownership(path, owned_path(path), clock.now_ms(), folders=folders)
            undo.callback(lock.release)
            for earlier in ("notes", "search"):  # the caches of older versions
                shutil.rmtree(path / "clew" / earlier, ignore_errors=True)
            note = path / "clew" / "format.json"
            if folder.read(note) != format_note(kind):
                folder.write_whole(note, format_note(kind), sync=True)
        store = _open_store(path, codec, lock, options, mint)
        undo.pop_all()
        return store


def _make_codec(kind: str, path: Path) -> Codec:
    # A store needs one of them.
    if kind == "json":
        from clew.store.files.json_file import JsonCodec

        return JsonCodec(path)
    from clew.store.files.jsonl import JsonlCodec

    return JsonlCodec(path)


def _open_store(path: Path, codec: Codec, lock: OwnerLock | None, options: FilesOptions, mint: Mint) -> FileStore:
    try:
        return _open_with_cache(path, codec, lock, options, mint)
    except sqlite3.Error as error:
        is_full = isinstance(translate(error, path), StorageFull)
        if not is_full and not is_broken(error):
            raise
        log.warning("the cache of %s cannot be used and is made again: %s", path, error)
        return _open_with_cache(path, codec, lock, options, mint, elsewhere=is_full)


def _open_with_cache(
    path: Path, codec: Codec, lock: OwnerLock | None, options: FilesOptions, mint: Mint, *, elsewhere: bool = False
) -> FileStore:
    shared = SharedFiles(path)
    watch = FolderWatch(path, codec, lock) if lock is not None else None
    file = CacheFile(path, codec.kind, owned=lock is not None, elsewhere=elsewhere)
    with contextlib.ExitStack() as undo:
        undo.callback(file.close)
        undo.callback(file.distrust)
        readers = ReaderPool(file.path, 2)
        undo.callback(readers.close)
        readers.lines = LineCache(lambda session_id: transactions.files.is_known(session_id))
        inbox = Inbox(0.0, 1.0)
        power = options.every_commit_full
        transactions = FileTransactions(path, codec, shared, watch, mint, readers.lines, inbox, file, power=power)
        files = transactions.files
        readers.wait_for_adoption = files.wait_for
        readers.tails = transactions.journal.tails
        files.open(file.left_by_kill)
        if watch is not None:
            file.keep_reserve()
        writer = ThreadedWriter(transactions, inbox)
        store = FileStore(path, codec, shared, watch, lock, readers, writer, transactions, file.close)
        undo.pop_all()
        return store


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
    if not is_whole or found not in _KINDS or type(version) is not int or version < 1:
        raise StoreUnavailable(
            f"{path} does not say what it holds: clew/format.json is not what was written; "
            "bring it back from a backup, or remove it if the last clew that wrote to this store was of this version"
        )
    return found, version
