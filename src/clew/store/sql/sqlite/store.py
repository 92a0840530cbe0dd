"""The SQLite store: one writer thread, readers off the event loop, one owner per file."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from clew.clock import Clock, SystemClock
from clew.errors import (
    InternalError,
    InvalidInput,
    NotSupported,
    StoreClosed,
    StoreReadOnly,
    StoreUnavailable,
)
from clew.failpoints import failpoint
from clew.ids import Mint
from clew.store.base import (
    Blob,
    Capabilities,
    Damage,
    LineSlice,
    OpenCall,
    PendingStream,
    QueuedMessage,
    Rebuilt,
    SearchPage,
    SearchQuery,
    SessionPage,
    SessionQuery,
    Whole,
)
from clew.store.facts import Fact
from clew.store.file_lock import FileLock, find_file
from clew.store.owner import OwnerLock, owned, refuse_lost, refuse_network_file_system
from clew.store.search import plan_search
from clew.store.sql.log import EventLog, is_kept
from clew.store.sql.losses import keep_loss, told
from clew.store.sql.sqlite.acknowledged import Acknowledged, find_loss, notes_of, read_notes
from clew.store.sql.sqlite.connection import (
    QUERIES,
    Connect,
    SqliteStatements,
    connect,
    empty_log,
    has_fts5,
    look,
    protect,
    translate,
    undo_first_write,
)
from clew.store.sql.sqlite.migrate import SCHEMA_VERSION, check_version, migrate
from clew.store.sql.sqlite.reader import Reader, ReaderPool
from clew.store.sql.sqlite.rebuild import rebuild
from clew.store.sql.sqlite.search_index import SearchIndex
from clew.store.sql.sqlite.writer import Writer
from clew.store.unit import Outcome, Unit
from clew.transcript.message import MessageRow
from clew.transcript.pruned import Pruned
from clew.transcript.session import Session, SessionState
from clew.transcript.turn import Step, Tree, Turn
from clew.triggers.ledger import Direction, EventPage, EventQuery, LedgerEvent
from clew.triggers.routing import RouteKind
from clew.triggers.schedule import Schedule
from clew.triggers.webhook import Webhook

__all__ = ["SqliteOptions", "SqliteStore", "open_sqlite"]

logger = logging.getLogger("clew.store")


class SqliteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a store is kept. ``read_only`` takes no owner lock and never writes."""

    read_only: bool = False
    every_commit_full: bool = False
    window_ms: float = 0.0
    lock_wait_ms: float = 60_000.0
    reader_threads: int = 2
    max_pages: int | None = None
    checkpoints: bool = True
    event_log: bool = False


async def open_sqlite(
    path: Path,
    options: SqliteOptions | None = None,
    *,
    clock: Clock | None = None,
    mint: Mint | None = None,
    connect: Connect = connect,
) -> SqliteStore:
    """Open a store, making or upgrading the file when it is opened for writing.

    All its connections are made by ``connect``: two SQLite libraries in one process would break each other's locks.
    """
    clock = clock or SystemClock()
    return await asyncio.to_thread(_open, path, options or SqliteOptions(), clock, mint or Mint(clock), connect)


def _open(path: Path, options: SqliteOptions, clock: Clock, mint: Mint, connect: Connect) -> SqliteStore:
    path = find_file(path)
    if path.is_dir():
        raise StoreUnavailable(f"{path} is a folder; name a file in it, such as sqlite:///{path / 'clew.db'}")
    refuse_network_file_system(path)
    with contextlib.ExitStack() as undo:
        try:
            if options.read_only:
                _check_readable(path)
                return SqliteStore(path, ReaderPool(path, options.reader_threads, connect), None, None)
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = _take(path, clock)
            undo.callback(lock.release)
            held_something = any(_size(path.with_name(path.name + suffix)) for suffix in ("", "-wal"))
            protect(path)
            connection = connect(path, writer=True)
            undo.callback(connection.close)
            if held_something:
                _refuse_emptied(connection, path)
            migrate(connection, path)
            if options.max_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {options.max_pages}")
            protect(path)
            lock.keep()
            log = _keep_log(connection, clock, wanted=options.event_log)
            acknowledged = _hold_to_word(connection, path, clock)
            undo.callback(acknowledged.close)
            # What was made or left in the log is in the database before anything is added, if there is room for it.
            with contextlib.suppress(sqlite3.Error):
                if empty_log(connection):
                    acknowledged.synced = acknowledged.commit
            readers = ReaderPool(path, options.reader_threads, connect)
            undo.callback(readers.close)
            lock.stays()  # what the readers are connected to is the file the writer has
            writer = Writer(
                connection,
                path,
                mint,
                every_commit_full=options.every_commit_full,
                window_ms=options.window_ms,
                lock_wait_ms=options.lock_wait_ms,
                checkpoints=options.checkpoints,
                log=log,
                lock=lock,
                acknowledged=acknowledged,
            )
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise translate(error, path) from error
        except OSError as error:
            raise StoreUnavailable(f"{path} cannot be opened: {error.strerror or error}") from error
        undo.pop_all()
        return SqliteStore(path, readers, writer, lock)


def _keep_log(connection: sqlite3.Connection, clock: Clock, *, wanted: bool) -> EventLog | None:
    """The log, begun or ended as it is wanted now; without a word when that is how it was."""
    statements = SqliteStatements(connection)
    log = EventLog(statements, clock)
    if is_kept(statements) is not wanted:
        connection.execute("BEGIN IMMEDIATE")
        try:
            (log.start if wanted else log.stop)()
            failpoint("log.before_switch")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    return log if wanted else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _refuse_emptied(connection: sqlite3.Connection, path: Path) -> None:
    """Files that hold no store any more, beside notes of one, have lost it: they are not the beginning of a new one."""
    if check_version(connection, path) != 0:
        return
    newest = max((note.commit for note in read_notes(path)), default=0)
    if newest:
        raise StoreUnavailable(
            f"nothing of what {path} held can be read, and {newest} commits were acknowledged here; restore a backup, "
            f"or move its files away to begin a new store"
        )


def _hold_to_word(connection: sqlite3.Connection, path: Path, clock: Clock) -> Acknowledged:
    """Compare what the file holds with what was acknowledged of it, note what is missing, and begin to note anew."""
    sql = SqliteStatements(connection)
    store_id, held = Reader(connection).counted()
    notes = read_notes(path)
    loss = find_loss(notes, store_id, held)
    if loss is not None:
        logger.error("%s: %s", path, told(loss).what)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("BEGIN IMMEDIATE")
        try:
            keep_loss(sql, loss, clock.now_ms())
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        connection.execute("PRAGMA synchronous = NORMAL")
        held = loss.acknowledged
    acknowledged = Acknowledged(path, store_id)
    synced = max((note.synced for note in notes_of(notes, store_id)), default=0)
    acknowledged.begin(held, min(held, synced))
    return acknowledged


def _take(path: Path, clock: Clock) -> OwnerLock:
    """The owner's lock on a file that is clew's, or is not there yet.

    Beside a file of another program nothing is ever left, and where a store was no other is begun.
    """
    refuse_lost(path)
    try:
        file = FileLock(path, make=True)
    except BlockingIOError as error:
        raise owned(path) from error
    try:
        undo_first_write(path)
        _refuse_untouched(path)
        return OwnerLock(file, path, clock.now_ms())
    except BaseException:
        if file.made:
            path.unlink()
        file.release()
        raise


def _refuse_untouched(path: Path) -> None:
    """Turn away a file that is newer or not clew's before anything of it is changed, be it only its journal mode."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    if path.stat().st_nlink > 1:
        raise StoreUnavailable(
            f"{path} has a second name (a hard link), and SQLite keeps what is newest under one name only: remove the "
            "other name, or copy the file to one of its own"
        )
    with contextlib.closing(look(path)) as connection:
        check_version(connection, path)


def _check_readable(path: Path) -> None:
    if not path.is_file():
        refuse_lost(path)
        raise StoreUnavailable(f"there is no store at {path}")
    _refuse_untouched(path)
    connection = connect(path, writer=False)
    try:
        version = check_version(connection, path)
    finally:
        connection.close()
    if version == 0:
        raise StoreUnavailable(f"{path} holds no store yet")
    if version < SCHEMA_VERSION:
        raise StoreUnavailable(
            f"{path} was written by an older clew (format {version} of {SCHEMA_VERSION}); "
            "open it once for writing, which upgrades it"
        )


class SqliteStore:
    """The contract on a SQLite file. See :mod:`clew.store.base` for what each method promises."""

    def __init__(self, path: Path, readers: ReaderPool, writer: Writer | None, lock: OwnerLock | None) -> None:
        self.path = path
        self._readers = readers
        self._writer = writer
        self._lock = lock
        self._closed = False
        self._search = has_fts5()

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(chunk_durable=True, search=self._search, many_processes=False)

    @property
    def commits(self) -> int:
        """How many transactions were committed since the store was opened."""
        return self._writer.commits if self._writer else 0

    def announce(self, url: str | None) -> None:
        """Tell second writers where this store is served."""
        if self._lock is not None:
            self._lock.announce(url)

    def submit(self, unit: Unit) -> asyncio.Future[Outcome]:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._writer is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        return self._writer.submit(unit)

    async def commit(self, unit: Unit) -> Outcome:
        return await self.submit(unit)

    async def find_session(self, session_id: str) -> Session | None:
        return await self._readers.run(Reader.find_session, session_id)

    async def list_sessions(self, query: SessionQuery) -> SessionPage:
        return await self._readers.run(Reader.list_sessions, query)

    async def list_children(self, parent_id: str) -> tuple[Session, ...]:
        return await self._readers.run(Reader.list_children, parent_id)

    async def find_routed(self, kind: RouteKind, name: str) -> Session | None:
        return await self._readers.run(Reader.find_routed, kind, name)

    async def load_state(self, session_id: str) -> SessionState:
        return await self._readers.run(Reader.load_state, session_id)

    async def load_line(
        self,
        session_id: str,
        *,
        through: str | None = None,
        turns: int | None = None,
        back_to_message: str | None = None,
        keep_damaged: bool = False,
    ) -> LineSlice:
        return await self._readers.run(Reader.load_line, session_id, through, turns, back_to_message, keep_damaged)

    async def load_view(
        self, session_id: str, *, turns: int | None = None, keep_damaged: bool = False
    ) -> LineSlice | None:
        return await self._readers.run(Reader.load_view, session_id, turns, keep_damaged)

    async def load_messages(self, session_id: str, *, keep_damaged: bool = False) -> tuple[MessageRow, ...]:
        return await self._readers.run(Reader.load_messages, session_id, keep_damaged)

    async def find_message(self, session_id: str, message_id: str) -> MessageRow | None:
        return await self._readers.run(Reader.find_message, session_id, message_id)

    async def find_client_message(self, session_id: str, client_message_id: str) -> tuple[MessageRow, ...]:
        return await self._readers.run(Reader.find_client_message, session_id, client_message_id)

    async def open_calls(self, session_id: str) -> tuple[OpenCall, ...]:
        return await self._readers.run(Reader.open_calls, session_id)

    async def unsettled_sessions(self) -> tuple[str, ...]:
        return await self._readers.run(Reader.unsettled_sessions)

    async def newest_message_at(self, session_id: str) -> int:
        return await self._readers.run(Reader.newest_message_at, session_id)

    async def load_tree(self, session_id: str) -> Tree:
        return await self._readers.run(Reader.load_tree, session_id)

    async def find_turn(self, turn_id: str) -> Turn | None:
        return await self._readers.run(Reader.find_turn, turn_id)

    async def load_steps(self, turn_id: str) -> tuple[Step, ...]:
        return await self._readers.run(Reader.load_steps, turn_id)

    async def load_pruned(self, session_id: str) -> tuple[Pruned, ...]:
        return await self._readers.run(Reader.load_pruned, session_id)

    async def load_queue(self, session_id: str) -> tuple[QueuedMessage, ...]:
        return await self._readers.run(Reader.load_queue, session_id)

    async def find_prompt(self, digest: str) -> str | None:
        return await self._readers.run(Reader.find_prompt, digest)

    async def find_blob(self, sha256: str) -> Blob | None:
        return await self._readers.run(Reader.find_blob, sha256)

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]:
        return await self._readers.run(Reader.load_project_rules, project)

    async def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        return await self._readers.run(Reader.find_event, direction, source, source_id)

    async def list_events(self, query: EventQuery) -> EventPage:
        return await self._readers.run(Reader.list_events, query)

    async def open_events(self, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        return await self._readers.run(Reader.open_events, session_id)

    async def list_schedules(self) -> tuple[Schedule, ...]:
        return await self._readers.run(Reader.list_schedules)

    async def list_webhooks(self) -> tuple[Webhook, ...]:
        return await self._readers.run(Reader.list_webhooks)

    async def pending_streams(self, session_id: str | None = None) -> tuple[PendingStream, ...]:
        return await self._readers.run(Reader.pending_streams, session_id)

    async def stream_mark(self, message_id: str) -> int:
        return await self._readers.run(Reader.stream_mark, message_id)

    async def load_whole(self, session_id: str) -> Whole | None:
        return await self._readers.run(Reader.load_whole, session_id)

    async def session_ids(self) -> tuple[str, ...]:
        return await self._readers.run(Reader.session_ids)

    async def seals(self, session_id: str) -> dict[str, str]:
        return await self._readers.run(Reader.seals, session_id)

    async def search(self, query: SearchQuery) -> SearchPage:
        self._need_search()
        plan = plan_search(query)
        writer = self._writer
        try:
            # A later page reads what the first one saw; what came since would move the hits between them.
            if writer is not None and plan.offset == 0:
                await self._catch_up(writer)
            page = await self._readers.run(Reader.search, plan)
        except StoreUnavailable:
            # Damage to the index is mended by making it again; damage to anything else stops that too.
            if writer is None:
                raise
            page = None
            await writer.work(SearchIndex.make)
        if page is None:
            if writer is None:
                raise NotSupported(f"{self.path} has no search index yet; open it for writing and search once")
            await self._catch_up(writer)
            page = await self._readers.run(Reader.search, plan)
        if page is None:
            raise InternalError("the search index went away while it was used; try again")
        return page

    async def rebuild_search(self) -> None:
        self._need_search()
        if self._writer is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        await self._writer.work(SearchIndex.make)
        await self._catch_up(self._writer)

    def _need_search(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        if not self._search:
            raise NotSupported("this SQLite was built without FTS5, so it cannot search; use one that has it")

    async def _catch_up(self, writer: Writer) -> None:
        """Index what is missing, a transaction at a time; whoever wants to write goes in between."""
        while await writer.work(SearchIndex.batch):
            pass

    async def verify(self) -> Sequence[Damage]:
        return (*await self._readers.run(Reader.verify), *await self._unnoted())

    async def losses(self) -> tuple[Damage, ...]:
        return (*await self._readers.run(Reader.losses), *await self._unnoted())

    async def _unnoted(self) -> tuple[Damage, ...]:
        """A loss that nobody who writes has met yet. Notes are read first: what they tell of is read after them."""
        if self._writer is not None:
            return ()
        notes = await asyncio.to_thread(read_notes, self.path)
        store_id, held = await self._readers.run(Reader.counted)
        loss = find_loss(notes, store_id, held)
        return (told(loss),) if loss is not None else ()

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        if self._writer is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        first = loss_id.removeprefix("loss-")
        return bool(first.isascii() and first.isdecimal() and await self._writer.accept_loss(int(first) - 1, at))

    async def load_facts(self, stream_id: str) -> tuple[Fact, ...]:
        return await self._readers.run(Reader.load_facts, stream_id)

    async def rebuild(self, target: Path) -> Rebuilt:
        return await asyncio.to_thread(rebuild, self.path, target)

    async def backup(self, target: Path) -> None:
        await asyncio.to_thread(_backup, self.path, target)

    async def release(self, session_id: str) -> None:
        pass

    async def close(self) -> None:
        self._closed = True
        writer, self._writer = self._writer, None
        if writer is not None:
            await asyncio.to_thread(writer.close)
        await asyncio.to_thread(self._readers.close)
        if self._lock is not None:
            self._lock.release()


def _backup(source: Path, target: Path) -> None:
    """Copy one state of the store through SQLite's backup. In WAL mode its one long read keeps no writer waiting;
    copying in steps would start over whenever somebody writes."""
    if target.exists():
        raise InvalidInput(f"{target} is already there; name a new file")
    try:
        protect(target)
        reader = connect(source, writer=False)
        try:
            copy = sqlite3.connect(target, isolation_level=None)
            try:
                reader.backup(copy)
                # A store of its own: whoever puts it in the place of the first one knows that it is older.
                copy.execute(QUERIES["name_store_anew"])
            finally:
                copy.close()
        finally:
            reader.close()
    except (sqlite3.Error, OSError) as error:
        for suffix in ("", "-journal", "-wal", "-shm"):
            target.with_name(target.name + suffix).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StoreUnavailable(f"{target} cannot be written: {error.strerror or error}") from error
        raise translate(error, target) from error
