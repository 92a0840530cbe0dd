"""Following files: the rows of the cache are those of the files, also where another program has changed them.

A session's files have a signature, which is stored with its rows. At opening all are compared; later, those of a
session when it is read or written to, unless this process is the one that writes to them.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
import time
from ast import literal_eval
from collections.abc import Iterable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from clew.errors import InternalError, RowUndecodable, StorageFull, StoreError, StoreGone
from clew.store.base import Damage
from clew.store.disk import translated
from clew.store.files.cache import Cache, CachedFile
from clew.store.files.codec import Codec, Loaded, with_loss_ids
from clew.store.files.folder_watch import FolderWatch
from clew.store.files.session_value import SessionValue
from clew.store.files.shared import SHARED, SharedFiles, event_key
from clew.store.location import owned_path
from clew.store.owner import read_owner
from clew.store.sql.inbox import AdoptionRequest, Inbox
from clew.store.sql.sqlite.connection import empty_log, is_broken, is_busy, translate
from clew.store.sql.sqlite.transactions import NoGuard, Transactions
from clew.store.unit import Unit
from clew.triggers.values.ledger import LedgerEvent

__all__ = ["FollowedFiles"]

log = logging.getLogger("clew.files")

_GRAIN_NS: Final = 20_000_000
"""The time within which two changes of a file may have the same timestamp."""
_BATCH: Final = 50
"""Sessions that are read in one transaction."""
_NOTHING: Final = ""
"""The signature of files that are not there."""
_TABLES: Final = tuple(name for name in SHARED if name != "accepted")


class FollowedFiles(NoGuard):
    """The guard of the cache. ``signatures`` are those of the files that the rows are from; ``held`` the sessions that
    this process writes to. Without ``watch`` another process may write to all of them."""

    def __init__(
        self,
        transactions: Transactions,
        cache: Cache,
        codec: Codec,
        shared: SharedFiles,
        watch: FolderWatch | None,
        inbox: Inbox,
    ) -> None:
        self._owned = owned_path(codec.sessions.parent)
        self._transactions, self._cache, self._codec, self._inbox = transactions, cache, codec, inbox
        self._shared, self._watch = shared, watch
        self._unsure: dict[str, str] = {}
        self._stale: set[str] = set()
        self._recent: set[str] = set()
        self._shared_is_stale = False
        self._emptied_at = 0
        self._version = self._data_version()
        self.held: set[str] = set()
        self.signatures: dict[str, str] = {}
        self.damages: dict[str, tuple[Damage, ...]] = {}
        self.accepted: dict[str, int] = shared.load("accepted")

    def open(self, left_by_kill: bool) -> None:
        """Bring the rows up to the files. ``left_by_kill``: the last owner of the cache did not close it."""
        if self._watch is not None:
            self._codec.sweep()
            there = frozenset(self._codec.on_disk())
            self._shared.tidy(lambda mark: mark[0] in there and self._codec.is_written(*mark))
        is_left = not self._has_other_owner()
        for session_id, file in self._cache.files().items():
            self.damages[session_id] = file.damages
            self.signatures[session_id] = file.signature
            if is_left and (file.ahead or self._newest(session_id) + _GRAIN_NS > file.seen_at):
                self._stale.add(session_id)
        known = {} if left_by_kill and self._watch is not None else self._cache.folders()
        changed = [name for name in _TABLES if known.get(name) != self._shared.signature(name)]
        if changed:
            with self._transaction():
                self._fill_shared(changed)
        self.follow(tidy=self._watch is not None)
        if self._watch is not None:
            for what in self._shared.unread:
                log.warning("%s", what)
            with self._transaction():
                self._cache.empty_replicas()
            self._collect()
            with contextlib.suppress(sqlite3.Error):
                empty_log(self._cache.connection)

    # In any thread

    def is_known(self, session_id: str | None) -> bool:
        """Return whether the rows of a session are those of its files; with None, of all sessions."""
        if session_id is None:
            return self._watch is not None and not self._stale and not self._shared_is_stale
        if session_id in self.held:
            return True
        if session_id in self._stale or session_id in self._recent:
            return False
        return self.signatures.get(session_id, _NOTHING) == self.sign(session_id)

    def wait_for(self, session_id: str | None) -> None:
        """Wait in a reader's thread until the rows of a session are those of its files."""
        if self._transactions.broken is None and not self.is_known(session_id):
            request = self._inbox.request(session_id)
            request.done.wait()
            if request.error is not None and (session_id is not None or not isinstance(request.error, StorageFull)):
                raise request.error

    def sign(self, session_id: str) -> str:
        """Return the signature of a session's files; that of none for an id that cannot name one."""
        if not self._codec.capabilities.session_ids.value.fullmatch(session_id):
            return _NOTHING
        found = self._codec.signature(session_id)
        return repr(found) if any(map(any, found)) else _NOTHING

    # In the writer's thread

    def begun(self) -> None:
        """Forget what was cached if another process has read changed files into the cache."""
        version = self._data_version()
        if version != self._version:
            self._version = version
            self._transactions.forget()
        if self._shared_is_stale:
            self._fill_shared(_TABLES)

    def committed(self, units: Sequence[Unit] = (), outcomes: Sequence[Any] = ()) -> None:
        self._shared_is_stale = False

    def maintain(self, requests: Sequence[AdoptionRequest], *, wrote: bool) -> None:
        for request in requests:
            try:
                self.follow(None if request.session_id is None else [request.session_id])
            except Exception as error:
                log.warning("changed files of %s could not be read: %r", self._transactions.name, error)
                found = translate(error, self._transactions.path)
                request.error = found if isinstance(found, Exception) else error
        if requests or wrote or self._transactions.broken is not None:
            return
        self._be_sure()
        if self._watch is not None:
            try:
                self._watch.check()
            except StoreGone as error:
                self._transactions.give_up(error)
        if self._emptied_at != self._transactions.journal.commit:
            # So that nothing of what was deleted stays in the WAL.
            with contextlib.suppress(sqlite3.Error):
                if empty_log(self._cache.connection):
                    self._emptied_at = self._transactions.journal.commit

    def close(self) -> None:
        """Record what the next opening need not read again."""
        if self._transactions.broken is None:
            if self._unsure:
                time.sleep(_GRAIN_NS / 1e9)
            self._be_sure()
            with contextlib.suppress(sqlite3.Error, OSError, StoreError):
                if self._watch is not None:
                    with self._transaction():
                        for name in _TABLES:
                            is_read = not self._shared.unread
                            self._cache.set_folder(name, self._shared.signature(name) if is_read else None)
                empty_log(self._cache.connection)

    def note_written(self, session_id: str, *, ahead: bool) -> None:
        """Record, in the open transaction, that the rows of a session are those of the files just written."""
        signature = self.sign(session_id)
        if not self._cache.set_file(session_id, signature, 0, ahead=ahead):
            self._cache.put_file(session_id, CachedFile(signature, 0, ahead))
        self.signatures[session_id] = self._unsure[session_id] = signature
        self._stale.discard(session_id)
        self._recent.discard(session_id)

    def note_removed(self, session_id: str) -> None:
        self._cache.forget_file(session_id)
        self._forget(session_id)

    def note_failed(self, session_id: str, *, written: bool) -> None:
        """Record that a transaction failed whose changes the files may have. It was rolled back."""
        if not written and self._is_intact(session_id):
            # On a full disk they could not be read again.
            self.signatures[session_id] = self.sign(session_id)
            return
        self._shared_is_stale = True
        with contextlib.suppress(sqlite3.Error):
            known = self._cache.signature(session_id)
            if self.sign(session_id) == (known[0] if known is not None else _NOTHING):
                return
        self._stale.add(session_id)

    def _is_intact(self, session_id: str) -> bool:
        """Return whether the files of a session are as they were, but for their times."""
        known, found = self.signatures.get(session_id, _NOTHING), self.sign(session_id)
        if _NOTHING in (known, found) or session_id in self._stale or session_id in self._recent:
            return False
        return [one[:2] for one in literal_eval(known)] == [one[:2] for one in literal_eval(found)]

    def follow(self, session_ids: Iterable[str] | None = None, *, tidy: bool = False) -> None:
        """Read the sessions again whose files have changed; with None all of them. ``tidy``: files that lag behind
        their log are updated, too."""
        if session_ids is None:
            there = self._codec.on_disk()
            wanted = [id_ for id_ in there if not self.is_known(id_)]
            wanted += (self.signatures.keys() | self._stale) - frozenset(there)
        else:
            wanted = [id_ for id_ in session_ids if not self.is_known(id_)]
        for first in range(0, max(len(wanted), self._shared_is_stale), _BATCH):
            batch = wanted[first : first + _BATCH]
            try:
                with self._transaction():
                    for session_id in batch:
                        self._read_again(session_id, tidy=tidy)
            except Exception:
                self._stale.update(batch)
                raise

    def load(self, session_id: str) -> Loaded | None:
        """Return what the files of a session hold."""
        with translated(self._codec.sessions.parent):
            if self._watch is not None:
                self._watch.note(session_id)
            loaded = self._codec.load(session_id)
        if loaded is None and self._watch is not None:
            self._watch.check()  # unless the whole folder is gone, another program has removed its files
            self._watch.forget(session_id)
        return loaded

    def must_be_usable(self, session_id: str) -> None:
        """Raise an error if the rows of a session are not what its files hold, since these cannot be used."""
        for damage in self.damages.get(session_id, ()):
            if damage.id is None:
                what = f"the files of session {session_id} are damaged, and are not written over: {damage.what}"
                raise RowUndecodable(what, session_id=session_id)

    def may_collect(self) -> bool:
        """Return whether everything is readable: an unreadable session may refer to any prompt or blob."""
        damages = (one for found in self.damages.values() for one in found if one.id not in self.accepted)
        return next(damages, None) is None and not self._shared.unread

    def _has_other_owner(self) -> bool:
        return self._watch is None and read_owner(self._owned) is not None

    # One session

    def _read_again(self, session_id: str, *, tidy: bool) -> None:
        signature = self.sign(session_id)
        known = self._cache.signature(session_id)
        is_sure = session_id not in self._stale and session_id not in self._recent
        is_fresh = known is not None and known[0] == signature and is_sure
        # Rows that are ahead of the files are their owner's, who writes them later.
        if is_fresh or (known is not None and known[1] and self._has_other_owner()):
            self.signatures[session_id] = signature
            return
        loaded = self.load(session_id)
        if loaded is None:
            if known is not None:
                self._drop(session_id)
            self._forget(session_id)
            return
        for damage in loaded.damages:
            log.warning("session %s: %s", session_id, damage.what)
        if tidy:
            with contextlib.suppress(OSError):  # updating a file that lags can wait until the disk has space
                loaded = loaded._replace(damages=self._codec.tidy(loaded))
                signature = self.sign(session_id)
                if self._watch is not None:
                    self._watch.note(session_id)
        self._put(session_id, loaded.value, with_loss_ids(loaded), signature)

    def _put(self, session_id: str, value: SessionValue, damages: tuple[Damage, ...], signature: str) -> None:
        connection = self._cache.connection
        connection.execute("SAVEPOINT session")
        try:
            self._fill(session_id, value)
        except (sqlite3.Error, InternalError, TypeError, ValueError) as error:
            if is_broken(error) or is_busy(error):
                raise
            # What the rest of the store does not allow, such as an id that another session has, too.
            connection.execute("ROLLBACK TO session")
            self._transactions.units.reset()
            damages = (*damages, Damage(f"what its files say cannot be used: {error}", session_id))
            log.warning("session %s: %s", session_id, damages[-1].what)
            self._fill(session_id, SessionValue.of(replace(value.row["session"], alias=None)))
        connection.execute("RELEASE session")
        self._cache.put_file(session_id, CachedFile(signature, time.time_ns(), damages=damages))
        self.signatures[session_id] = signature
        self.damages[session_id] = damages
        self._stale.discard(session_id)
        self._recent.discard(session_id)
        if self._newest(session_id) + _GRAIN_NS > time.time_ns():
            self._recent.add(session_id)  # another change may leave the same time

    def _fill(self, session_id: str, value: SessionValue) -> None:
        journal = self._transactions.journal
        with self._replacing(session_id):
            self._cache.put(value)
            for message_id, entries in value.journal.items():
                journal.accept(session_id, message_id, entries)
        self._transactions.index.note(value.seals)

    def _drop(self, session_id: str) -> None:
        with self._replacing(session_id):
            self._cache.drop(session_id)
        self._forget(session_id)

    @contextlib.contextmanager
    def _replacing(self, session_id: str) -> Any:
        """Replace the rows of a session in a way that is no change of it."""
        transactions = self._transactions
        with self._cache.mode("reading"):
            while transactions.index.forget_session(session_id):
                pass
            transactions.journal.delete_session(session_id)
            yield
            transactions.journal.finish()
        transactions.units.forget(session_id)
        transactions.lines.forget(transactions.journal.commit, session_id)

    def _forget(self, session_id: str) -> None:
        for table in (self.signatures, self.damages, self._unsure):
            table.pop(session_id, None)
        self._stale.discard(session_id)
        self._recent.discard(session_id)

    def _newest(self, session_id: str) -> int:
        return max((found[2] for found in self._codec.signature(session_id)), default=0)

    def _be_sure(self) -> None:
        """Record that files written a while ago have not changed since: their timestamps would show it from now on."""
        now = time.time_ns()
        sure = {
            id_: signature
            for id_, signature in self._unsure.items()
            if signature == self.sign(id_) and now - self._newest(id_) > _GRAIN_NS
        }
        if sure:
            with contextlib.suppress(sqlite3.Error), self._transaction():
                for session_id, signature in sure.items():
                    self._cache.see_file(session_id, signature, now)
                    self._unsure.pop(session_id, None)

    # Shared tables

    def _fill_shared(self, names: Iterable[str]) -> None:
        """Read shared tables again from their files."""
        with self._cache.mode("reading"):
            for name in names:
                signature = self._shared.signature(name)
                self._cache.fill(name, self._shared.load(name))
                # The owner says what it has read when it closes the cache; until then it may write to the files.
                is_read = self._watch is None and not self._shared.unread
                self._cache.set_folder(name, signature if is_read else None)

    def _collect(self) -> None:
        """Complete what a process left that died: an event without its message, and blobs that nothing names."""
        if not self.may_collect():
            return
        there = self._codec.on_disk()
        event = self._cache.newest_event()
        if event is not None and (not self._is_left(event) or (not there and event.seq > 1)):
            event = None  # without any session, all of them are missing, and not its message
        if event is not None and self._has_become_damaged(event.session_id):
            return
        with self._transaction():
            if event is not None:
                key = event_key(event.direction, event.source, event.source_id, event.attempt)
                self._shared.forget("events", key)
                self._fill_shared(["events"])
            if there:
                self._shared.collect(self._cache.named_blobs())
                self._fill_shared(["blobs"])

    def _is_left(self, event: LedgerEvent) -> bool:
        """Return whether the message of an event is missing, which is written after it. An event without data belongs
        to a deleted session."""
        if not event.data or event.message_id is None:
            return False
        return not self._cache.has_message(event.session_id, event.message_id)

    def _has_become_damaged(self, session_id: str) -> bool:
        """Return whether the files of a session are damaged, although their signature is the same."""
        loaded = self._codec.load(session_id) if session_id in self.signatures else None
        if loaded is None or not loaded.damages:
            return False
        self.damages[session_id] = with_loss_ids(loaded)
        return True

    # Transactions

    @contextlib.contextmanager
    def _transaction(self) -> Any:
        self._transactions.begin()
        try:
            self.begun()
            yield
            self._cache.connection.execute("COMMIT")
            self.committed()
        except BaseException:
            self._transactions.roll_back()
            raise

    def _data_version(self) -> int:
        version: int = self._cache.connection.execute("PRAGMA data_version").fetchone()[0]
        return version
