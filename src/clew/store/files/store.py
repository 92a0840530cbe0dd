"""The file store: the memory store, with a codec that brings every unit to disk before it is applied.

Units wait in one row. A round takes the first of each session, carries it out to see what it changes, takes that back,
writes it down in a thread, and then carries it out for good: nobody reads what is not durable. Sessions that nothing
happens on are let go of after a while and read again when somebody asks for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from clew.clock import Clock, Timer
from clew.errors import StoreClosed, StoreReadOnly
from clew.ids import Mint, check_session_id
from clew.store import unit as u
from clew.store.base import Blob, Capabilities, Damage, Whole
from clew.store.files import folder
from clew.store.files.care import Damages, copy_folder, left_event, look_over
from clew.store.files.codec import Codec, Loaded, Saving
from clew.store.files.folder_watch import FolderWatch
from clew.store.files.job import Job, Planned, fail, next_round, persist, sessions_of
from clew.store.files.shared import SharedFiles
from clew.store.memory.change import Change
from clew.store.memory.session_value import SessionValue
from clew.store.memory.store import MemoryStore
from clew.store.memory.tables import SharedTables
from clew.store.owner import OwnerLock
from clew.transcript.model_call import ModelCall
from clew.transcript.session import Session
from clew.triggers.ledger import Direction, LedgerEvent

__all__ = ["IDLE_MS", "FileStore"]

log = logging.getLogger("clew.files")

IDLE_MS: Final = 30 * 60 * 1000.0
"""How long a session stays in memory when nobody asks for it."""


class Header(NamedTuple):
    """What is remembered of a session that is not in memory."""

    session: Session
    turns: frozenset[str]
    blobs: frozenset[str]
    prompts: frozenset[str]
    calls: tuple[ModelCall, ...]


class Resident(msgspec.Struct):
    """What is known of a session in memory beside its value: what its codec remembers of its files, when it was asked
    for last, and, without the lock, what its files looked like."""

    memo: Any
    used_at: float
    signature: object = None


class FileStore(MemoryStore):
    """The contract on a folder of files. See :mod:`clew.store.base` for what each method promises."""

    def __init__(self, path: Path, codec: Codec, power: bool, lock: OwnerLock | None, clock: Clock, mint: Mint) -> None:
        super().__init__()
        self.path = path
        self._codec = codec
        self._power = power
        self._lock = lock
        self._watch = FolderWatch(path, codec, lock)
        self._clock = clock
        self._mint = mint
        self._files = SharedFiles(path)
        self._shared = SharedTables(*(self._files.load(name) for name in SharedTables.__struct_fields__))
        self._residents: dict[str, Resident] = {}
        self._damages = Damages(self._files)
        self._headers: dict[str, Header] = {}
        self._waiting: deque[Job] = deque()
        self._busy: set[str] = set()
        self._disk = asyncio.Lock()
        self._worker: asyncio.Task[None] | None = None
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._timer: Timer | None = None

    @property
    def url(self) -> str:
        return f"{self._codec.kind}:{self.path}"

    @property
    def capabilities(self) -> Capabilities:
        return self._codec.capabilities

    def announce(self, url: str | None) -> None:
        """Tell second writers where this store is served."""
        if self._lock is not None:
            self._lock.announce(url)

    def take_stock(self) -> None:
        """Read every session once, as the new owner: what lags is brought in line, what is unfinished stays at hand."""
        self._codec.sweep()
        messages: dict[str, frozenset[str]] = {}
        for session_id in self._codec.on_disk():
            loaded = self._codec.load(session_id)
            if loaded is not None:
                for damage in loaded.damages:
                    log.warning("session %s: %s", session_id, damage.what)
                with contextlib.suppress(OSError):  # a file that lags can wait for room on the disk
                    loaded = loaded._replace(damages=self._codec.tidy(loaded))
                self._watch.note(session_id)
                self._keep(session_id, loaded)
                messages[session_id] = frozenset(loaded.value.messages)
                if not loaded.value.is_unsettled:
                    self._let_go(session_id)
        self._files.tidy()
        for what in self._files.unread:
            log.warning("%s", what)
        if self._may_collect():
            self._collect(messages)

    def _may_collect(self) -> bool:
        """Whether everything reads: what does not may name what nobody else does."""
        return not self._damages and not self._files.unread

    def _collect(self, messages: dict[str, frozenset[str]]) -> None:
        """Remove what a process that died left of a unit that never was."""
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
        return future

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
                        await asyncio.to_thread(self._watch.check)  # much is taken in without a look at the disk
                    for session_id in sessions_of(job.unit):
                        await self._bring(session_id)
                except Exception as error:
                    fail(job, error)
            ready = [job for job in jobs if not job.future.done()]
            planned = [plan for job in ready if (plan := self._plan(job)) is not None]
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
            self._watch_idle()

    def _plan(self, job: Job) -> Planned | None:
        """See what the unit changes, without leaving a trace; None when it has its answer already."""
        try:
            outcome = self._apply(job.unit)
            if isinstance(outcome, u.Refused):
                job.future.set_result(outcome)
                return None
            try:
                shared = self._files.plan(outcome.of(self._shared.tables()))
                saving = self._saving(job.unit, outcome)
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
            return Saving(lambda: self._codec.remove(session_id), lambda: None)
        entries = change.of(value.tables())
        held = self._residents.get(session_id)
        if held is not None and not entries:
            return None
        memo = held and held.memo
        return self._codec.plan(value, memo, entries, sync=unit.sync == "power", power=self._power)

    def _settle(self, plan: Planned, error: BaseException | None) -> None:
        """The unit is durable, or it never was."""
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
            held.memo, held.used_at = memo or held.memo, self._clock.monotonic_ms()
        if not plan.job.future.done():
            plan.job.future.set_result(u.Committed())

    # Memory

    async def _find(self, session_id: str) -> SessionValue | None:
        if self._closed:
            raise StoreClosed("the store is closed")
        await self._bring(session_id)
        value = self._values.get(session_id)
        if session_id in self._residents:
            self._residents[session_id].used_at = self._clock.monotonic_ms()
        return value

    async def _bring(self, session_id: str) -> None:
        """Have the session in memory, if there is one. Whoever asks at the same time waits for the same load."""
        if self._lock is None:
            await self._refresh(session_id)
        elif session_id not in self._values and session_id in self._headers:
            if session_id not in self._loading:
                task = asyncio.get_running_loop().create_task(self._load(session_id))
                self._loading[session_id] = task
                task.add_done_callback(lambda _: self._loading.pop(session_id, None))
            await asyncio.shield(self._loading[session_id])

    async def _load(self, session_id: str) -> None:
        loaded = await asyncio.to_thread(self._load_files, session_id)
        if loaded is None:
            self._forget(session_id)  # somebody has removed its files
        elif session_id in self._headers:
            self._keep(session_id, loaded)
            self._watch_idle()

    def _load_files(self, session_id: str) -> Loaded | None:
        with folder.translated(self.path):
            self._watch.note(session_id)
            return self._codec.load(session_id)

    async def _refresh(self, session_id: str) -> None:
        """Without the lock somebody else may write: what has changed is read again."""
        if not self._codec.capabilities.session_ids.value.fullmatch(session_id):
            return
        now = await asyncio.to_thread(self._codec.signature, session_id)
        if session_id in self._residents and self._residents[session_id].signature == now:
            return
        loaded = await asyncio.to_thread(self._load_files, session_id)
        if loaded is None:
            self._forget(session_id)
        else:
            self._keep(session_id, loaded, now)

    async def _bring_all(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._lock is None:
            there = await asyncio.to_thread(self._codec.on_disk)
            for session_id in [known for known in self._values if known not in there]:
                self._forget(session_id)
            for session_id in there:
                await self._refresh(session_id)

    def _keep(self, session_id: str, loaded: Loaded, signature: object = None) -> None:
        self._values[session_id] = loaded.value
        self._residents[session_id] = Resident(loaded.memo, self._clock.monotonic_ms(), signature)
        self._damages.note(session_id, loaded)
        self._headers.pop(session_id, None)

    def _let_go(self, session_id: str) -> None:
        value = self._values.pop(session_id)
        del self._residents[session_id]
        named = (frozenset(value.turns), frozenset(value.blobs), value.prompts(), value.all_calls())
        self._headers[session_id] = Header(value.session, *named)

    def _forget(self, session_id: str) -> None:
        for table in (self._values, self._residents, self._headers):
            table.pop(session_id, None)
        self._damages.forget(session_id)
        self._watch.forget(session_id)

    @property
    def in_memory(self) -> tuple[str, ...]:
        """The sessions that are in memory now."""
        return tuple(sorted(self._values))

    async def release(self, session_id: str) -> None:
        """Nobody works on the session any more: it is written down, and let go of where the format wants that."""
        if self._codec.evicts_released:
            await self._evict(session_id)

    async def _evict(self, session_id: str) -> None:
        """Let go of a session that is all on disk. One that is being written, or is unfinished, stays."""
        async with self._disk:
            value = self._values.get(session_id)
            if value is None or self._lock is None or self._closed:
                return
            saving = self._codec.save(value, self._residents[session_id].memo)
            if saving is not None:
                await asyncio.to_thread(self._watch.write_down, saving.persist, session_id)
                self._residents[session_id].memo = saving.done()
            if not self._is_awaited(session_id) and not value.is_unsettled:
                self._let_go(session_id)

    def _is_awaited(self, session_id: str) -> bool:
        return session_id in self._busy or any(session_id in sessions_of(job.unit) for job in self._waiting)

    def _watch_idle(self) -> None:
        if self._timer is None and self._values and self._lock is not None and not self._closed:
            self._timer = self._clock.call_later(IDLE_MS, self._on_idle)

    def _on_idle(self) -> None:
        self._timer = None
        limit = self._clock.monotonic_ms() - IDLE_MS
        for session_id, held in [*self._residents.items()]:
            value = self._values[session_id]
            saved = held.used_at <= limit and self._codec.save(value, held.memo) is None
            if saved and not self._is_awaited(session_id) and not value.is_unsettled:
                self._let_go(session_id)
        self._watch_idle()

    # Reading what is not one session's

    def _sessions(self) -> Iterable[Session]:
        yield from super()._sessions()
        yield from (header.session for header in self._headers.values())

    def _calls_of(self, session_id: str) -> Iterable[ModelCall]:
        header = self._headers.get(session_id)
        return header.calls if header is not None else super()._calls_of(session_id)

    def _is_there(self, session_id: str) -> bool:
        return super()._is_there(session_id) or session_id in self._headers

    def _named_blobs(self) -> set[str]:
        return super()._named_blobs().union(*(header.blobs for header in self._headers.values()))

    def _named_prompts(self) -> set[str]:
        return super()._named_prompts().union(*(header.prompts for header in self._headers.values()))

    async def _holder(self, turn_id: str) -> SessionValue | None:
        # Only for a turn that nobody knows is every session looked at.
        held = ((id_, value.turns) for id_, value in self._values.items())
        known = ((id_, header.turns) for id_, header in self._headers.items())
        holder = next((id_ for id_, turns in (*held, *known) if turn_id in turns), None)
        await (self._bring_all() if holder is None else self._find(holder))
        return await super()._holder(turn_id)

    async def load_calls(self, session_id: str | None) -> tuple[ModelCall, ...]:
        await self._reload("calls")
        return await super().load_calls(session_id)

    async def find_prompt(self, digest: str) -> str | None:
        await self._reload("prompts")
        return await super().find_prompt(digest)

    async def load_project_rules(self, project: str) -> tuple[dict[str, object], ...]:
        await self._reload("rules")
        self._files.must_read("rules", project)
        return await super().load_project_rules(project)

    async def find_event(self, direction: Direction, source: str, source_id: str) -> LedgerEvent | None:
        self._files.must_read("events", (direction, source, source_id))
        return await super().find_event(direction, source, source_id)

    async def open_events(self, session_id: str | None = None) -> tuple[LedgerEvent, ...]:
        found = await super().open_events(session_id)
        # What went out and does not read went out all the same.
        return tuple(one for one in found if not self._files.is_unread("events", ("out", one.source, one.source_id)))

    async def find_blob(self, sha256: str) -> Blob | None:
        await self._reload("blobs")
        known = self._shared.blobs.get(sha256)
        data = None if known is None else await asyncio.to_thread(self._files.read_blob, sha256)
        if known is not None and data is not None:
            return replace(known, data=data)
        # Whoever brings the bytes once more mends it.
        self._shared.blobs.pop(sha256, None)
        self._files.must_read("blobs", sha256)
        return None

    async def _reload(self, name: Literal["prompts", "rules", "blobs", "calls"]) -> None:
        """Without the lock somebody else may have added to a table."""
        if self._lock is None:
            setattr(self._shared, name, await asyncio.to_thread(self._files.load, name))

    # Care

    async def find_whole(self, session_id: str) -> Whole | None:
        whole = await super().find_whole(session_id)
        if whole is None:
            return None
        return replace(whole, damaged=self._damages.of(session_id))

    async def session_ids(self) -> tuple[str, ...]:
        await self._bring_all()
        return tuple(sorted((*self._values, *self._headers)))

    async def losses(self) -> tuple[Damage, ...]:
        await self._bring_all()
        return self._damages.losses

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        if self._lock is None:
            raise StoreReadOnly(f"{self.path} was opened for reading")
        if all(loss.id != loss_id for loss in self._damages.losses):
            return False
        async with self._disk:
            await asyncio.to_thread(self._watch.write_down, partial(self._damages.accept, loss_id, at))
        return True

    async def verify(self) -> Sequence[Damage]:
        return await asyncio.to_thread(look_over, self.path, self._codec)

    async def backup(self, target: Path) -> None:
        await asyncio.to_thread(copy_folder, self._codec, self._files, target)

    async def close(self) -> None:
        if self._closed:
            return
        while self._worker is not None:
            await asyncio.wait({self._worker})
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._lock is None:
            return
        savings = {id_: self._codec.save(value, self._residents[id_].memo) for id_, value in self._values.items()}
        try:
            await asyncio.to_thread(self._watch.write_all, savings)
        finally:
            self._lock.release()
