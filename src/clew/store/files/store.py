"""The file store: the memory store, with a codec that writes every unit to disk before it is applied.

Units wait in a queue. A round takes the first of each session, applies it to find its changes, reverts it, writes the
changes in a thread, and then applies it permanently, so that no reader sees a change that is not durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Container, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from clew.clock import Clock
from clew.errors import NotSupported, StoreClosed, StoreReadOnly
from clew.ids import Mint, check_session_id
from clew.store import unit as u
from clew.store.base import Blob, Capabilities, Damage, FullSession, SearchPage, SearchQuery
from clew.store.disk import check_room
from clew.store.files.codec import Codec, Loaded, Saving
from clew.store.files.job import Job, Planned, fail, next_round, persist, sessions_of
from clew.store.files.maintenance import copy_folder, left_event, look_of, warm_caches
from clew.store.files.metadata import with_file_keys
from clew.store.files.residence import Residence, Resident
from clew.store.files.search_copy import OpenCopy, SearchCopy
from clew.store.memory.change import Change
from clew.store.memory.session_value import SessionValue
from clew.store.memory.tables import SharedTables, event_key
from clew.store.owner import OwnerLock
from clew.transcript.model_call import ModelCall
from clew.triggers.values.ledger import Direction, LedgerEvent

__all__ = ["FileStore"]

log = logging.getLogger("clew.files")


class FileStore(Residence):
    """The contract on a folder of files. See :mod:`clew.store.base` for what each method promises."""

    def __init__(
        self,
        path: Path,
        codec: Codec,
        power: bool,
        lock: OwnerLock | None,
        clock: Clock,
        mint: Mint,
        open_copy: OpenCopy | None = None,
    ) -> None:
        super().__init__(path, codec, lock, clock)
        self._copy = SearchCopy(path, open_copy, read_only=lock is None) if open_copy is not None else None
        self._power = power
        self._mint = mint
        self._shared = SharedTables(*(self._files.load(name) for name in SharedTables.__struct_fields__))
        self._shared.calls.clear()  # they only grow, and are read on demand
        self._waiting: deque[Job] = deque()
        self._busy: set[str] = set()
        self._worker: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"{self._codec.kind}:{self.path}"

    @property
    def capabilities(self) -> Capabilities:
        return replace(self._codec.capabilities, search=self._copy is not None)

    def announce(self, url: str | None) -> None:
        """Tell second writers where this store is served."""
        if self._lock is not None:
            self._lock.announce(url)

    async def check_writable(self) -> None:
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        await asyncio.to_thread(self._watch.check)
        await asyncio.to_thread(check_room, self.path, self.path)

    def take_stock(self) -> None:
        """Read every session, as the new owner, and remove the remains of incomplete units."""
        there = self._take_in()
        self._files.tidy(lambda session_mark: session_mark[0] in there and self._codec.is_written(*session_mark))
        self._shared.rules = self._files.load("rules")
        for what in self._files.unread:
            log.warning("%s", what)
        if self._may_collect():
            self._collect(there)

    def _may_collect(self) -> bool:
        """Return whether everything is readable: an unreadable session may refer to any blob."""
        return not self._damages and not self._files.unread

    def _collect(self, there: list[str]) -> None:
        newest = max(self._shared.events.values(), key=lambda event: event.seq, default=None)
        messages: dict[str, Container[str]] = dict.fromkeys(there, ())
        if newest is not None and newest.session_id in messages:
            loaded = self._codec.load(newest.session_id)
            if loaded is not None and loaded.damages:
                # The damage did not change the signature of the files, so that the note seemed valid.
                self._damages.note(newest.session_id, loaded)
                return
            messages[newest.session_id] = loaded.value.messages if loaded is not None else ()
        key = left_event(self._shared.events, messages)
        if key is not None:
            self._files.forget("events", key)
            del self._shared.events[key]
        if messages:
            self._files.collect(self._named_blobs())
            self._shared.blobs = self._files.load("blobs")

    # Writing

    def submit(self, unit: u.Unit) -> asyncio.Future[u.Outcome]:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        future: asyncio.Future[u.Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append(Job(unit, future))
        if self._worker is None:
            self._worker = asyncio.get_running_loop().create_task(self._work())
        return self._notify_on_commit(unit, future)

    async def _work(self) -> None:
        try:
            while self._waiting:
                jobs, self._waiting = next_round(self._waiting)
                try:
                    async with self._disk:
                        await self._carry_out(jobs)
                except Exception:
                    log.exception("a round of units failed; the next ones go on")
        finally:
            self._worker = None

    async def _carry_out(self, jobs: list[Job]) -> None:
        self._busy = {id_ for job in jobs for id_ in sessions_of(job.unit)}
        try:
            for job in jobs:
                try:
                    if not self._codec.capabilities.chunk_durable:
                        await asyncio.to_thread(self._watch.check)  # many units are accepted without a write
                    for session_id in sessions_of(job.unit):
                        await self._bring(session_id)
                    await self._bring_days(job.unit)
                except Exception as error:
                    fail(job, error)
            ready = [job for job in jobs if not job.future.done()]
            planned = [plan for job in ready if (plan := self._plan(job)) is not None]
            for plan in planned:
                if self._copy is not None and plan.deletes:
                    await self._copy.forget(plan.job.unit.session_id)
            if planned:
                failures = await asyncio.to_thread(persist, planned, self.path, self._watch)
                for plan, failure in zip(planned, failures, strict=True):
                    self._settle(plan, failure)
        except BaseException as error:
            for job in jobs:
                fail(job, error)
            raise
        finally:
            self._busy = set()
            self._shared.calls.clear()
            self._watch_idle()

    async def _bring_days(self, unit: u.Unit) -> None:
        """Load the days of calls that are added to the shared table: of a deleted session, or of none."""
        calls = [
            write.call for write in unit.writes if isinstance(write, u.PutCall) and unit.session_id == u.STORE_WIDE
        ]
        if any(isinstance(write, u.DeleteSession) for write in unit.writes) and unit.session_id in self._values:
            calls += self._values[unit.session_id].calls.values()
        days = {call.day for call in calls}
        if days:
            self._shared.calls.update(await asyncio.to_thread(self._files.load, "calls", days))

    def _plan(self, job: Job) -> Planned | None:
        """Plan a unit's writes without changing anything; None if it has its outcome already."""
        try:
            outcome = self._apply(job.unit)
            if isinstance(outcome, u.Refused):
                job.future.set_result(outcome)
                return None
            try:
                saving = self._saving(job.unit, outcome)
                held = self._residents.get(job.unit.session_id) if saving is not None else None
                session_mark = (job.unit.session_id, self._codec.mark(job.unit.session_id, held.memo)) if held else None
                shared = self._files.plan(outcome.of(self._shared.tables()), session_mark)
            finally:
                outcome.undo()
        except Exception as error:
            fail(job, error)
            return None
        plan = Planned(job, outcome, shared, saving)
        if saving is None and not shared.before and not shared.after:
            self._settle(plan, None)
            return None
        return plan

    def _saving(self, unit: u.Unit, change: Change) -> Saving | None:
        session_id = unit.session_id
        if session_id == u.STORE_WIDE and session_id not in self._values:
            return None
        check_session_id(session_id, self._codec.capabilities.session_ids)
        value = self._values.get(session_id)
        if value is None:
            return Saving(partial(self._remove, session_id), lambda: None)
        entries = change.of(value.tables())
        held = self._residents.get(session_id)
        if held is not None and not entries:
            return None
        memo = held and held.memo
        return self._codec.plan(value, memo, entries, sync=unit.sync == "power", power=self._power)

    def _remove(self, session_id: str) -> None:
        self._codec.remove(session_id)
        self._notes.forget(session_id)

    def _settle(self, plan: Planned, error: BaseException | None) -> None:
        """Apply a durable unit, or report its failure."""
        if self._copy is not None:
            self._copy.note(plan.job.unit.session_id)
        if error is not None:
            fail(plan.job, error)
            return
        session_id = plan.job.unit.session_id
        plan.change.redo()
        for sha256 in {done.key for done in plan.change.done if done.table is self._shared.blobs}:
            # The bytes are in their file, and stay out of memory.
            if sha256 in self._shared.blobs:
                self._shared.blobs[sha256] = replace(self._shared.blobs[sha256], data=b"")
        memo = plan.saving.done() if plan.saving is not None else None
        if session_id not in self._values:
            self._forget(session_id)
        else:
            held = self._residents.setdefault(session_id, Resident(memo, 0.0))
            held.memo, held.used_at, held.header = memo or held.memo, self._clock.monotonic_ms(), None
            self._unnoted.pop(session_id, None)
        if not plan.job.future.done():
            plan.job.future.set_result(u.Committed())

    def _is_awaited(self, session_id: str) -> bool:
        return session_id in self._busy or any(session_id in sessions_of(job.unit) for job in self._waiting)

    # Shared tables

    async def load_calls(self, session_id: str | None) -> tuple[ModelCall, ...]:
        if session_id is not None:
            return await super().load_calls(session_id)
        days = (await asyncio.to_thread(self._files.load, "calls")).values()
        return tuple(sorted((call for day in days for call in day), key=lambda call: (call.asked_at, call.id)))

    async def find_prompt(self, digest: str) -> str | None:
        await self._reload("prompts")
        return await super().find_prompt(digest)

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]:
        await self._reload("rules")
        self._files.must_read("rules", project)
        return await super().load_project_rules(project)

    async def list_projects(self) -> tuple[str, ...]:
        await self._reload("rules")
        return await super().list_projects()

    async def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        self._files.must_read("events", event_key(direction, source, source_id, 1))
        return await super().find_event(direction, source, source_id)

    async def open_events(self, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        found = await super().open_events(session_id)
        # An unreadable outgoing event was sent still.
        sent = (event_key("out", one.source, one.source_id, one.attempt) for one in found)
        return tuple(one for one, key in zip(found, sent, strict=True) if not self._files.is_unread("events", key))

    async def find_blob(self, sha256: str, owner: str | None = None) -> Blob | None:
        await self._reload("blobs")
        if owner is not None:
            await self._bring_unsettled()
            if not self._names_blob(owner, sha256):
                return None
        known = self._shared.blobs.get(sha256)
        data = None if known is None else await asyncio.to_thread(self._files.read_blob, sha256)
        if known is not None and data is not None:
            return replace(known, data=data)
        # Storing the blob again repairs it.
        self._shared.blobs.pop(sha256, None)
        self._files.must_read("blobs", sha256)
        return None

    async def _reload(self, name: Literal["prompts", "rules", "blobs"]) -> None:
        """Without the lock, read a table again, since another process may have added to it."""
        if self._lock is None:
            setattr(self._shared, name, await asyncio.to_thread(self._files.load, name))

    # Maintenance

    async def find_full_session(self, session_id: str) -> FullSession | None:
        whole = await super().find_full_session(session_id)
        if whole is None:
            return None
        held: Resident | Loaded | None = self._residents.get(session_id)
        if held is None:
            held = await asyncio.to_thread(self._read_files, session_id)
        session = with_file_keys(whole.session, held.memo.others) if held is not None else whole.session
        return replace(whole, session=session, damaged=self._damages.of(session_id))

    async def losses(self) -> tuple[Damage, ...]:
        await self._bring_unsettled()
        return self._damages.losses

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        if all(loss.id != loss_id for loss in self._damages.losses):
            return False
        async with self._disk:
            await asyncio.to_thread(self._watch.write_down, partial(self._damages.accept, loss_id, at))
        return True

    async def search(self, query: SearchQuery) -> SearchPage:
        return await self._search_copy().search(query, self._see, self._peek)

    async def rebuild_search(self) -> None:
        copy = self._search_copy()
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        await copy.rebuild(self._see, self._peek)

    def _search_copy(self) -> SearchCopy:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._copy is None:
            raise NotSupported("this SQLite was built without FTS5, so it cannot search; use one that has it")
        return self._copy

    def _see(self, session_ids: Iterable[str] | None) -> dict[str, str]:
        wanted = self._codec.on_disk() if session_ids is None else session_ids
        return {id_: look_of(self._codec, id_) for id_ in wanted}

    async def _peek(self, session_id: str) -> SessionValue | None:
        """Return a session's value without caching it."""
        value = self._values.get(session_id)
        if value is None:
            loaded = await asyncio.to_thread(self._read_files, session_id)
            value = loaded.value if loaded is not None else None
        return value

    async def verify(self) -> Sequence[Damage]:
        found, known = await asyncio.to_thread(warm_caches, self.path, self._codec)
        return (*found, *(await self._copy.verify(known) if self._copy is not None else ()))

    async def backup(self, target: Path) -> None:
        await asyncio.to_thread(copy_folder, self._codec, self._files, target)

    async def close(self) -> None:
        if self._closed:
            return
        while self._worker is not None:
            await asyncio.wait({self._worker})
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        if self._noting is not None:
            await asyncio.wait({self._noting})
        if self._copy is not None:
            await self._copy.close()
        if self._lock is None:
            return
        savings = {id_: self._codec.save(value, self._residents[id_].memo) for id_, value in self._values.items()}
        try:
            await asyncio.to_thread(self._watch.write_all, savings)
            await asyncio.to_thread(self._write_notes)
        finally:
            self._lock.release()
