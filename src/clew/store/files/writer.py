"""The transactions of a folder of sessions: each unit is applied to the cache, and written to the files before COMMIT.

Each unit has a transaction of its own: it is applied to the cache's rows, what it changed is read back and written to
the files, and then the rows are committed. A process that dies in between leaves files that are newer than the rows,
which are then read again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from clew.errors import StorageFull, StoreError, StoreGone, StoreReadOnly
from clew.failpoints import failpoint
from clew.ids import Mint, check_session_id
from clew.store import unit as u
from clew.store.commit_batcher import Answer
from clew.store.disk import translated
from clew.store.files.cache_file import CacheFile
from clew.store.files.codec import Codec, Saving
from clew.store.files.folder_watch import FolderWatch
from clew.store.files.follow import FollowedFiles
from clew.store.files.session_value import ABSENT, Entries, SessionValue
from clew.store.files.shared import SharedFiles, SharedPlan
from clew.store.sql.inbox import Inbox, Work
from clew.store.sql.line_cache import LineCache
from clew.store.sql.sqlite.connection import empty_log, is_broken, translate
from clew.store.sql.sqlite.search_index import SearchIndex
from clew.store.sql.sqlite.transactions import Transactions
from clew.transcript.session import SessionState

__all__ = ["MAX_IN_MEMORY", "FileTransactions"]

log = logging.getLogger("clew.files")

MAX_IN_MEMORY: Final = 64
"""The number of sessions whose files stay in memory, as they were last written."""
_ENDING: Final = (u.SetTurn, u.RecordStep)
_ORDER: Final = {name: place for place, name in enumerate(SessionValue.__struct_fields__)} | {"state": 99}
"""The order of a unit's records. The state comes last: it says on its own what others say in part."""


class _Image(msgspec.Struct):
    """The contents of a session's files, as the codec needs them to write to them."""

    value: SessionValue
    memo: Any


class _Planned(NamedTuple):
    """The changes of a unit: to the files of its session, and to shared ones."""

    image: _Image | None
    saving: Saving | None
    shared: SharedPlan


class FileTransactions(Transactions):
    """See :class:`clew.store.sql.sqlite.transactions.Transactions`. Without ``watch`` no unit is written."""

    def __init__(
        self,
        root: Path,
        codec: Codec,
        shared: SharedFiles,
        watch: FolderWatch | None,
        mint: Mint,
        lines: LineCache,
        inbox: Inbox,
        file: CacheFile,
        *,
        power: bool,
    ) -> None:
        cache = file.cache
        super().__init__(cache.connection, root, mint, lines)
        self._file = file
        cache.watch()
        self._root, self._cache, self._codec, self._shared, self._watch = root, cache, codec, shared, watch
        self._power = power
        self._images: dict[str, _Image] = {}
        self._copies: dict[str, _Image] = {}
        """The sessions that are being copied in portions, which no list shows yet."""
        self.files = FollowedFiles(self, cache, codec, shared, watch, inbox)
        self.guard = self.files
        self.failure: StoreError | None = None

    @property
    def in_memory(self) -> tuple[str, ...]:
        """The sessions whose files are in memory."""
        return tuple(sorted(self._images))

    def begin(self) -> None:
        self._file.use()
        super().begin()

    def write(self, units: Sequence[u.Unit]) -> list[Answer]:
        return [self._write_unit(unit) for unit in units]

    def release(self, session_id: str) -> Work:
        """Return the work that writes what is only in the cache, and drops what is in memory."""

        def work(_: SearchIndex) -> None:
            self._save(session_id)
            self._forget(session_id)

        return work

    def close(self) -> None:
        """Write what is only in the cache, then close it. ``failure`` is the first error."""
        ahead = self._cache.ahead() if self._watch is not None else ()
        for session_id in {*self._images, *ahead}:
            failed = self.work(lambda _, id_=session_id: self._save(id_))  # type: ignore[misc]
            if isinstance(failed, StoreError):
                self.failure = self.failure or failed
        super().close()

    def _write_unit(self, unit: u.Unit) -> Any:
        """Apply and write a unit; return its outcome or error."""
        if self._watch is None:
            return StoreReadOnly(f"{self._root} was opened for reading")
        if self.broken is not None:
            return self.broken
        found = self._try(unit, self._watch)
        ends = _deletes(unit) or any(isinstance(write, _ENDING) for write in unit.writes)
        if isinstance(found, StorageFull) and ends and self._file.give_room():
            empty_log(self.connection)
            found = self._try(unit, self._watch)
        return found

    def _try(self, unit: u.Unit, watch: FolderWatch) -> Any:
        written = False
        try:
            image = self._bring(unit)
            self.begin()
            self.guard.begun()
            outcome = self._apply(unit)
            if isinstance(outcome, u.Committed):
                planned = self._plan(unit, image)
                written = self._persist(unit, planned, watch)
                self._note(unit, planned)
            failpoint("files.before_cache")
            self.connection.execute("COMMIT")
        except Exception as error:
            self._forget(unit.session_id)
            self.roll_back()
            self.files.note_failed(unit.session_id, written=written)
            if is_broken(error):
                self._file.distrust()
            if written:
                # The files have the unit. The rows are older than they, and read again before they are used.
                log.warning("the cache of %s lags behind its files: %r", self._root, error)
                return u.Committed()
            if is_broken(error) or (isinstance(error, StoreGone) and "session_id" not in error.ids):
                self.broken = translate(error, self._root)
            return translate(error, self._root)
        self.commits += 1
        self.guard.committed([unit], [outcome])
        self.lines.committed(self.journal.commit, [unit])
        return outcome

    def _bring(self, unit: u.Unit) -> _Image | None:
        """Bring the rows that a unit reads up to the files; return what the files of its session hold."""
        sources = [write.source_session_id for write in unit.writes if isinstance(write, u.CopyLine)]
        if unit.session_id == u.STORE_WIDE:
            self.files.follow(sources)
            return None
        self.files.follow([*sources, unit.session_id])
        if not _deletes(unit):
            self.files.must_be_usable(unit.session_id)
        image = self._images.pop(unit.session_id, None)
        while image is None and unit.session_id in self.files.signatures:
            image = self._load(unit.session_id)
            if self.files.signatures.get(unit.session_id) != self.files.sign(unit.session_id):
                image = None  # another program has changed them since the rows were read
                self.files.follow([unit.session_id])
        return image

    def _load(self, session_id: str) -> _Image | None:
        """Return what the files of a session hold, or what was accepted, if its rows are ahead of them."""
        loaded = self.files.load(session_id)
        if loaded is not None and self._cache.signature(session_id) == (self.files.sign(session_id), True):
            # A unit failed since then, so that they are not in memory any more.
            return _Image(self._cache.read(session_id) or loaded.value, self._codec.ahead(loaded.memo))
        return _Image(loaded.value, loaded.memo) if loaded is not None else None

    def _apply(self, unit: u.Unit) -> u.Outcome:
        inserts = any(isinstance(write, u.InsertSession) for write in unit.writes)
        collects = _deletes(unit) or any(isinstance(write, u.DeletePortion) for write in unit.writes)
        with self._cache.mode("damaged", on=collects and not self.files.may_collect()):
            outcome = self.units.apply(unit)
            self.units.finish()
        if inserts and isinstance(outcome, u.Committed):
            check_session_id(unit.session_id, self._codec.capabilities.session_ids)
        return outcome

    def _plan(self, unit: u.Unit, image: _Image | None) -> _Planned:
        """Plan the write of what the unit changed."""
        session_id, removes = unit.session_id, _deletes(unit)
        image = image or self._copy_of(unit)
        changed, shared = self._cache.changes(session_id, image.value if image is not None and not removes else None)
        for (name, sha256), (_, blob) in shared.items():
            if name == "blobs" and blob is not ABSENT:
                self._cache.empty_blob(sha256)
        saving: Saving | None = None
        mark: Any = None
        if removes:
            saving = Saving(lambda: self._codec.remove(session_id), lambda: None)
        elif session_id != u.STORE_WIDE:
            entries = self._entries(unit, image, changed) if image is not None else {}
            if image is not None:
                image.value.apply(entries)
            elif (value := self._cache.read(session_id)) is not None:
                image, entries = _Image(value, None), _first_entries(value)
            if image is not None and _is_portion(unit):
                saving = self._codec.plan_copy(image.value, image.memo, entries)
            elif image is not None and (entries or image.memo is None):
                mark = (session_id, self._codec.mark(session_id, image.memo)) if image.memo is not None else None
                sync = unit.sync == "power"
                saving = self._codec.plan(image.value, image.memo, entries, sync=sync, power=self._power)
        return _Planned(image, saving, self._shared.plan(shared, mark if saving is not None else None))

    def _persist(self, unit: u.Unit, planned: _Planned, watch: FolderWatch) -> bool:
        """Write a unit to the files; return whether they have it, and not the cache alone."""
        _, saving, plan = planned
        if saving is None and not (plan.before or plan.after):
            watch.check()  # many units may be accepted without a write
            return False
        with translated(self._root), watch.writing(unit.session_id, removing=_deletes(unit)):
            _write(plan, saving)
        return not _is_portion(unit)  # no reader would find it

    def _note(self, unit: u.Unit, planned: _Planned) -> None:
        """Record what the files have, in memory and in the cache."""
        session_id, (image, saving, _) = unit.session_id, planned
        if _deletes(unit):
            self._forget(session_id)
            self.files.note_removed(session_id)
        elif image is not None:
            image.memo = saving.done() if saving is not None else image.memo
            if _is_portion(unit):
                self._copies[session_id] = image
                return
            self._keep(session_id, image)
            if saving is not None or self._codec.is_ahead(image.memo):
                self.files.note_written(session_id, ahead=self._codec.is_ahead(image.memo))

    def _entries(self, unit: u.Unit, image: _Image, changed: Entries) -> dict[tuple[str, Any], tuple[Any, Any]]:
        """Return the changes of a session in the order of its records, with those of its journal, whose rows hold the
        chunks of several sessions."""
        entries = {key: changed[key] for key in sorted(changed, key=lambda one: _ORDER[one[0]])}
        if _is_portion(unit):
            entries.pop(("row", "session"), None)  # no read returns it yet
        journal, marks = image.value.journal, image.value.marks
        now: dict[str, tuple[u.JournalEntry, ...]] = {}
        through: dict[str, int] = {}
        for write in unit.writes:
            if isinstance(write, u.AppendChunks):
                id_ = write.message_id
                now[id_] = (*now.get(id_, journal.get(id_, ())), *write.entries)
            elif isinstance(write, u.MarkFolded):
                id_ = write.message_id
                held = now.get(id_, journal.get(id_, ()))
                now[id_] = tuple(entry for entry in held if entry.n > write.through)
                through[id_] = write.through
        for id_, held in now.items():
            before, after = journal.get(id_, ABSENT), held or ABSENT
            mark_before = marks.get(id_, ABSENT)
            mark_after = through.get(id_, mark_before) if held else ABSENT
            # Unchanged ones, too: they say that the unit is part of a stream.
            entries |= {("journal", id_): (before, after), ("marks", id_): (mark_before, mark_after)}
        return entries

    # What is in memory

    def _copy_of(self, unit: u.Unit) -> _Image | None:
        """Return what the portions of a copy so far have written; for the first one, the session alone."""
        for write in unit.writes:
            if isinstance(write, u.InsertSession) and write.unfinished:
                return _Image(SessionValue.of(replace(write.session, head_turn_id=None)), None)
        return self._copies.pop(unit.session_id, None)

    def _keep(self, session_id: str, image: _Image) -> None:
        self._images[session_id] = image
        self.files.held.add(session_id)
        if len(self._images) > MAX_IN_MEMORY:
            for id_, other in [*self._images.items()]:
                if id_ != session_id and not self._codec.is_ahead(other.memo):
                    self._forget(id_)
                    break

    def _forget(self, session_id: str) -> None:
        self._images.pop(session_id, None)
        self._copies.pop(session_id, None)
        self.files.held.discard(session_id)
        if self._watch is not None:
            self._watch.forget(session_id)

    def _save(self, session_id: str) -> None:
        """Write the changes of a session that are only in the cache."""
        image = self._images.get(session_id)
        if image is None and (self._cache.signature(session_id) or ("", False))[1]:
            image = self._load(session_id)
        saving = self._codec.save(image.value, image.memo) if image is not None else None
        if image is not None and saving is not None and self._watch is not None:
            self._watch.write_down(saving.persist, session_id)
            image.memo = saving.done()
            self.files.note_written(session_id, ahead=False)


def _deletes(unit: u.Unit) -> bool:
    return any(isinstance(write, u.DeleteSession | u.BeginDeletion) for write in unit.writes)


def _is_portion(unit: u.Unit) -> bool:
    """Return whether a unit adds to a session that is not complete after it."""
    return any(isinstance(write, u.CopyLine) and write.is_portion for write in unit.writes)


def _first_entries(value: SessionValue) -> dict[tuple[str, Any], tuple[Any, Any]]:
    """Return the entries of a new session; none before anything happened in it."""
    found = {(name, key): (ABSENT, entry) for name, table in value.tables().items() for key, entry in table.items()}
    is_empty = found.keys() == {("row", "session"), ("state", "state")} and value.state["state"] == SessionState()
    return {} if is_empty else found


def _write(plan: SharedPlan, saving: Saving | None) -> None:
    """Write a unit: its shared entries, then its session. After a failure, what was written before is undone."""
    undo: list[Callable[[], None]] = []
    try:
        for action, way_back in plan.before:
            action()
            undo += [way_back] if way_back is not None else []
        if saving is not None:
            saving.persist()
    except BaseException:
        for action in reversed(undo):
            with contextlib.suppress(OSError):
                action()
        raise
    # The rest only removes files that nothing names; after a failure, opening the store removes them.
    for action in plan.after:
        with contextlib.suppress(OSError):
            action()
