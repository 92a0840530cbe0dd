"""The file store: sessions as files, read and searched through a cache.

See :mod:`clew.store.files.cache` for what is where, and :mod:`clew.store.files.writer` for how a unit is written.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from clew.errors import InvalidInput, NotSupported, StoreReadOnly
from clew.store.base import Blob, Capabilities, Damage, FullSession, Rebuilt
from clew.store.disk import check_room, translated
from clew.store.files import folder
from clew.store.files.cache import Cache
from clew.store.files.codec import Codec, format_note, with_loss_ids
from clew.store.files.folder_watch import FolderWatch
from clew.store.files.metadata import with_file_keys
from clew.store.files.session_value import SessionValue
from clew.store.files.shared import SHARED, SharedFiles, event_key
from clew.store.files.writer import FileTransactions
from clew.store.owner import OwnerLock
from clew.store.sql.sqlite.pool import ReaderPool
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.sql.sqlite.writer import Writer
from clew.store.sql.statements import Statements
from clew.triggers.values.ledger import Direction, LedgerEvent

__all__ = ["FileStore", "copy_folder", "verify_files"]


class FileStore(SqliteStore):
    """The contract on a folder of files. See :mod:`clew.store.base` for what each method promises."""

    def __init__(
        self,
        root: Path,
        codec: Codec,
        shared: SharedFiles,
        watch: FolderWatch | None,
        lock: OwnerLock | None,
        readers: ReaderPool,
        writer: Writer,
        transactions: FileTransactions,
        close_cache: Callable[[], None],
    ) -> None:
        super().__init__(root, readers, writer, lock)
        self._codec, self._shared, self._watch = codec, shared, watch
        self._transactions, self._files = transactions, transactions.files
        self._close_cache = close_cache

    @property
    def url(self) -> str:
        return f"{self._codec.kind}:{self.path}"

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._codec.capabilities, search=self._search)

    @property
    def in_memory(self) -> tuple[str, ...]:
        """The ids of the sessions whose files are in memory."""
        return self._transactions.in_memory

    async def check_writable(self) -> None:
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        await super().check_writable()

    def _check_disk(self) -> None:
        if self._watch is not None:
            self._watch.check()
        check_room(self.path, self.path)

    def _open_writer(self) -> Writer:
        writer = super()._open_writer()
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        return writer

    # Shared tables

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]:
        self._shared.must_read("rules", project)
        return await super().load_project_rules(project)

    async def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        self._shared.must_read("events", event_key(direction, source, source_id, 1))
        return await super().find_event(direction, source, source_id)

    async def open_events(self, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        found = await super().open_events(session_id)
        # An unreadable outgoing event was sent still.
        sent = (event_key("out", one.source, one.source_id, one.attempt) for one in found)
        return tuple(one for one, key in zip(found, sent, strict=True) if not self._shared.is_unread("events", key))

    async def find_blob(self, sha256: str, owner: str | None = None) -> Blob | None:
        def find(sql: Statements) -> tuple[bool, str | None]:
            if owner is not None and sql.first("is_blob_of", {"sha256": sha256, "owner": owner}) is None:
                return False, None
            row = sql.first("find_blob", {"sha256": sha256})
            return True, row[1] if row is not None else None

        may_read, media_type = await self._readers.run(find)
        if not may_read:
            return None
        data = await asyncio.to_thread(self._shared.read_blob, sha256) if media_type is not None else None
        if media_type is None or data is None:
            self._shared.must_read("blobs", sha256)
            return None
        return Blob(sha256, media_type, data)

    # Maintenance

    async def find_full_session(self, session_id: str) -> FullSession | None:
        whole = await super().find_full_session(session_id)
        if whole is None:
            return None
        with translated(self.path):
            loaded = await asyncio.to_thread(self._codec.load, session_id)
        session = with_file_keys(whole.session, loaded.memo.others) if loaded is not None else whole.session
        return replace(whole, session=session, damaged=(*self._damages(session_id), *whole.damaged))

    def _damages(self, session_id: str) -> tuple[Damage, ...]:
        return tuple(one for one in self._files.damages.get(session_id, ()) if one.id not in self._files.accepted)

    async def losses(self) -> tuple[Damage, ...]:
        await self.session_ids()  # so that changed files are read again
        found = (damage for session_id in [*self._files.damages] for damage in self._damages(session_id))
        return tuple(damage for damage in found if damage.id is not None and damage.id.startswith("loss-"))

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        if self._lock is None or self._watch is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        if all(loss.id != loss_id for loss in await self.losses()):
            return False
        await asyncio.to_thread(self._watch.write_down, partial(self._shared.put, "accepted", loss_id, at))
        self._files.accepted[loss_id] = at
        return True

    async def verify(self) -> Sequence[Damage]:
        def rows_of(cache: Cache, session_id: str, signature: str) -> SessionValue | None:
            return cache.read(session_id) if cache.signature(session_id) == (signature, False) else None

        def check(sql: Statements) -> Sequence[Damage]:
            cache = Cache(sql.connection)  # type: ignore[attr-defined]
            return verify_files(self.path, self._codec, partial(rows_of, cache))

        return await self._readers.run(check, long=True)

    async def rebuild(self, target: Path) -> Rebuilt:
        raise NotSupported(f"a {self._codec.kind}: store keeps no event log to rebuild from; a sqlite: one does")

    async def write_ledger(self, target: Path) -> None:
        raise NotSupported(
            "the ledger is written from a sqlite: store; `clew convert` this one into such a store first"
        )

    async def backup(self, target: Path) -> None:
        await asyncio.to_thread(copy_folder, self._codec, self._shared, target)

    async def release(self, session_id: str) -> None:
        if self._lock is not None and not self._closed:
            await self._open_writer().work(self._transactions.release(session_id))

    async def close(self) -> None:
        if self._closed:
            return
        lock, self._lock = self._lock, None
        try:
            await super().close()
        finally:
            await asyncio.to_thread(self._close_cache)
            if lock is not None:
                lock.release()
        if self._transactions.failure is not None:
            raise self._transactions.failure


def verify_files(path: Path, codec: Codec, rows_of: Callable[[str, str], SessionValue | None]) -> Sequence[Damage]:
    """Return all damage and missing files, and sessions whose rows in the cache differ from their files.

    ``rows_of`` returns the rows of a session, if they are from files with this signature.
    """
    found: list[Damage] = []
    shared = SharedFiles(path)
    with translated(path):
        blobs = {sha: shared.read_blob(sha) is not None for sha in shared.load("blobs")}
        tables = {name: shared.load(name) for name in SHARED.keys() - {"blobs"}}
        for session_id in codec.on_disk():
            signature = repr(codec.signature(session_id))
            loaded = codec.load(session_id)
            if loaded is None:
                continue  # removed since it was listed
            rows = rows_of(session_id, signature)
            if rows is not None and not loaded.damages and not _is_same(loaded.value, rows):
                what = "the cache does not hold what its files say; remove clew/cache.db, which is made again"
                found.append(Damage(what, session_id))
            found += (one for one in with_loss_ids(loaded) if one.id not in tables["accepted"])
            missing = [sha for sha in loaded.value.blobs if sha not in blobs]
            found += [Damage("a file that it names is missing", session_id, sha) for sha in missing]
    return (*found, *(Damage(what) for what in shared.unread))


def copy_folder(codec: Codec, shared: SharedFiles, target: Path) -> None:
    """Copy the store to ``target``, which must not exist yet."""
    if target.exists():
        raise InvalidInput(f"{target} is already there; name a new folder")
    making = target.with_name(f"{target.name}.making")
    with translated(target):
        try:
            shutil.rmtree(making, ignore_errors=True)
            folder.make_folder(making / "clew")
            codec.copy(making)
            shared.copy(making)
            folder.write_whole(making / "clew" / "format.json", format_note(codec.kind), sync=True)
            making.rename(target)
        except BaseException:
            shutil.rmtree(making, ignore_errors=True)
            raise


def _is_same(value: SessionValue, rows: SessionValue) -> bool:
    """Return whether the rows of a session are what its files say. Only the cache seals other programs' messages, and
    only there a stream has a mark from its beginning."""
    seals = {id_: seal for id_, seal in rows.seals.items() if id_ in value.seals}
    row = {"session": replace(value.row["session"], head_turn_id=None)}  # the state has the head
    return replace(rows, seals=seals, marks={}) == replace(value, row=row, marks={})
