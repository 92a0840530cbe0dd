"""The cache of a folder's sessions: which are in memory, and headers of the others.

A session is read on demand. It is evicted when it is released, after half an hour without use, or when the cache is
full, but never while it has unfinished turns or unwritten changes. Evicted sessions have a header in memory; without
the owner's lock, only the current contents of their files.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from clew.clock import Clock, Timer
from clew.errors import StoreClosed
from clew.store.disk import translated
from clew.store.files import folder
from clew.store.files.codec import Codec, Loaded
from clew.store.files.folder_watch import FolderWatch
from clew.store.files.header import Header, Note, Notes, header_of
from clew.store.files.maintenance import Damages
from clew.store.files.shared import SharedFiles
from clew.store.memory.session_value import SessionValue
from clew.store.memory.store import MemoryStore
from clew.store.owner import OwnerLock
from clew.transcript.model_call import ModelCall
from clew.transcript.session import Session, Spend
from clew.transcript.spend import UsageGroup, UsageQuery, sum_calls

__all__ = ["IDLE_MS", "KEPT", "Residence", "Resident"]

log = logging.getLogger("clew.files")

IDLE_MS: Final = 30 * 60 * 1000.0
"""How long an unused session stays in memory."""

KEPT: Final = 64
"""The number of sessions without unfinished work that stay in memory."""

_NOTE_MS: Final = 1000.0


class Resident(msgspec.Struct):
    """The state of a session in memory besides its value: the codec's memo, the time of its last use, whether it is
    undamaged, its header while it is unchanged, and, without the lock, the signature of its files."""

    memo: Any
    used_at: float
    whole: bool = True
    header: Header | None = None
    signature: object = None


class Residence(MemoryStore):
    """The memory store over the sessions of a folder; the base of the store that writes them."""

    def __init__(self, path: Path, codec: Codec, lock: OwnerLock | None, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.path = path
        self._codec = codec
        self._lock = lock
        self._watch = FolderWatch(path, codec, lock)
        self._files = SharedFiles(path)
        self._damages = Damages(self._files)
        self._notes = Notes(path)
        self._residents: dict[str, Resident] = {}
        self._headers: dict[str, Header] = {}
        self._unnoted: dict[str, tuple[Header, tuple[ModelCall, ...]]] = {}
        self._heads: dict[str, tuple[folder.Footprint, Session]] = {}
        self._seen: dict[str, tuple[object, bool]] = {}
        self._disk = asyncio.Lock()
        self._loading: dict[str, asyncio.Task[SessionValue | None]] = {}
        self._noting: asyncio.Task[None] | None = None
        self._timers: dict[str, Timer] = {}

    @abstractmethod
    def _is_awaited(self, session_id: str) -> bool:
        """Return whether a unit of the session is being written."""

    def _take_in(self) -> list[str]:
        """Read every session, as the new owner: update files that lag, and keep unfinished sessions in memory."""
        self._codec.sweep()
        there = self._codec.on_disk()
        self._notes.tidy(frozenset(there))
        for session_id in there:
            note = self._notes.find(session_id, self._codec.signature(session_id))
            if note is not None:
                self._headers[session_id] = note.header
                continue
            loaded = self._codec.load(session_id)
            if loaded is None:
                continue
            for damage in loaded.damages:
                log.warning("session %s: %s", session_id, damage.what)
            with contextlib.suppress(OSError):  # updating a file that lags can wait until the disk has space
                loaded = loaded._replace(damages=self._codec.tidy(loaded))
            self._watch.note(session_id)
            self._keep(session_id, loaded)
            if not loaded.value.is_unsettled:
                self._let_go(session_id)
                self._write_notes()
        return there

    # One session

    async def _find(self, session_id: str) -> SessionValue | None:
        if self._closed:
            raise StoreClosed("the store is closed")
        value = await self._bring(session_id)
        if session_id in self._residents:
            self._residents[session_id].used_at = self._clock.monotonic_ms()
        return value

    async def find_session(self, session_id: str) -> Session | None:
        if self._closed:
            raise StoreClosed("the store is closed")
        header = self._headers.get(session_id) if self._lock is not None else None
        # Another program may have removed its files.
        if header is not None and any(await asyncio.to_thread(self._codec.headed, session_id)):
            return header.session
        return await super().find_session(session_id)

    async def _bring(self, session_id: str) -> SessionValue | None:
        """Load the session into memory, if it exists. Concurrent callers wait for the same load.

        The value is returned, since the session may be evicted before a caller continues.
        """
        if self._lock is None:
            await self._refresh(session_id)
        elif session_id not in self._values and session_id in self._headers:
            if session_id not in self._loading:
                task = asyncio.get_running_loop().create_task(self._load(session_id))
                self._loading[session_id] = task
                task.add_done_callback(lambda _: self._loading.pop(session_id, None))
            return await asyncio.shield(self._loading[session_id])
        return self._values.get(session_id)

    async def _load(self, session_id: str) -> SessionValue | None:
        loaded = await asyncio.to_thread(self._load_files, session_id)
        if loaded is None:
            # Another program has removed its files, unless the whole folder is gone.
            await asyncio.to_thread(self._watch.check)
            self._forget(session_id)
        elif session_id in self._headers:
            self._keep(session_id, loaded)
            self._watch_idle()
            return loaded.value
        return None

    def _load_files(self, session_id: str) -> Loaded | None:
        with translated(self.path):
            self._watch.note(session_id)
        return self._read_files(session_id)

    def _read_files(self, session_id: str) -> Loaded | None:
        """Read a session without caching it. Concurrent writes are not affected."""
        with translated(self.path):
            return self._codec.load(session_id)

    async def _refresh(self, session_id: str) -> None:
        """Read a session again if it has changed. Without the lock, another process may write."""
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

    def _keep(self, session_id: str, loaded: Loaded, signature: object = None) -> None:
        header = self._headers.pop(session_id, None) if self._lock is not None else None
        now = self._clock.monotonic_ms()
        self._values[session_id] = loaded.value
        self._residents[session_id] = Resident(loaded.memo, now, not loaded.damages, header, signature)
        self._damages.note(session_id, loaded)
        if len(self._residents) > KEPT:
            oldest = sorted(self._residents, key=lambda id_: self._residents[id_].used_at)
            for id_ in oldest[: len(oldest) - KEPT]:
                if id_ != session_id and self._may_go(id_):
                    self._let_go(id_)

    def _may_go(self, session_id: str) -> bool:
        """Return whether a session can be evicted: it is written completely and has no unfinished turns."""
        value = self._values[session_id]
        saved = self._codec.save(value, self._residents[session_id].memo) is None
        return saved and not self._is_awaited(session_id) and not value.is_unsettled

    def _let_go(self, session_id: str) -> None:
        value, held = self._values.pop(session_id), self._residents.pop(session_id)
        if self._lock is None:
            return
        header = held.header or header_of(value)
        if held.header is None and held.whole:
            self._unnoted[session_id] = (header, value.all_calls())
            self._later("note", _NOTE_MS)
        self._headers[session_id] = header

    def _forget(self, session_id: str) -> None:
        for table in (self._values, self._residents, self._headers, self._unnoted, self._heads, self._seen):
            table.pop(session_id, None)
        self._damages.forget(session_id)
        self._watch.forget(session_id)

    @property
    def in_memory(self) -> tuple[str, ...]:
        """The ids of the sessions that are in memory."""
        return tuple(sorted(self._values))

    async def release(self, session_id: str) -> None:
        """Write an idle session, and evict it unless it has unfinished turns."""
        async with self._disk:
            value = self._values.get(session_id)
            if value is None or self._lock is None or self._closed:
                return
            saving = self._codec.save(value, self._residents[session_id].memo)
            if saving is not None:
                await asyncio.to_thread(self._watch.write_down, saving.persist, session_id)
                self._residents[session_id].memo = saving.done()
            if self._may_go(session_id):
                self._let_go(session_id)

    # Time

    def _watch_idle(self) -> None:
        if self._values:
            self._later("idle", IDLE_MS)

    def _later(self, name: str, after_ms: float) -> None:
        """Start a timer, unless there is no event loop, as at opening."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            if name not in self._timers and self._lock is not None and not self._closed:
                then = self._on_idle if name == "idle" else self._on_note
                self._timers[name] = self._clock.call_later(after_ms, then)

    def _on_idle(self) -> None:
        del self._timers["idle"]
        limit = self._clock.monotonic_ms() - IDLE_MS
        for session_id, held in [*self._residents.items()]:
            if held.used_at <= limit and self._may_go(session_id):
                self._let_go(session_id)
        self._watch_idle()

    def _on_note(self) -> None:
        del self._timers["note"]

        async def write() -> None:
            async with self._disk:
                await asyncio.to_thread(self._write_notes)

        self._noting = asyncio.get_running_loop().create_task(write())

    def _write_notes(self) -> None:
        """Write the notes of evicted sessions whose files are unchanged since."""
        for session_id in [*self._unnoted]:
            known = self._unnoted.pop(session_id, None)
            if known is not None and self._watch.is_as_left(session_id):
                self._notes.write(Note(self._codec.signature(session_id), *known))

    # Many sessions

    def _sessions(self) -> Iterable[Session]:
        if self._lock is None:
            yield from (session for _, session in self._heads.values())
            return
        yield from super()._sessions()
        yield from (header.session for header in self._headers.values())

    def _session_at(self, session_id: str) -> Session | None:
        if self._lock is None:
            return self._heads[session_id][1] if session_id in self._heads else None
        header = self._headers.get(session_id)
        return header.session if header is not None else super()._session_at(session_id)

    def _names_blob(self, owner: str, sha256: str) -> bool:
        away = (one for one in self._headers.values() if one.session.owner == owner)
        return super()._names_blob(owner, sha256) or any(sha256 in one.blobs for one in away)

    async def _list_all(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._lock is None:
            await asyncio.to_thread(self._read_heads)

    def _read_heads(self) -> None:
        """Without the lock: read the rows of sessions whose files have changed."""
        there = self._codec.on_disk()
        heads: dict[str, tuple[folder.Footprint, Session]] = {}
        for session_id in there:
            now = self._codec.headed(session_id)
            known = self._heads.get(session_id)
            if known is not None and known[0] == now:
                heads[session_id] = known
                continue
            session = self._codec.head(session_id)
            if session is None:
                loaded = self._load_files(session_id)
                if loaded is None:
                    continue
                session = msgspec.structs.replace(loaded.value.session, spend=loaded.value.spend)
            heads[session_id] = (now, session)
        self._heads = heads

    async def _bring_unsettled(self) -> None:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._lock is None:
            await asyncio.to_thread(self._look_over)
            unsettled = [id_ for id_, (_, settled) in self._seen.items() if not settled]
            for session_id in {*unsettled, *self._values}:
                await self._refresh(session_id)

    def _look_over(self) -> None:
        """Without the lock: load a header of every session, and note which have unfinished turns."""
        headers: dict[str, Header] = {}
        seen: dict[str, tuple[object, bool]] = {}
        for session_id in self._codec.on_disk():
            now = self._codec.signature(session_id)
            # A concurrent call may find that it was deleted, and drop it.
            known, looked = self._headers.get(session_id), self._seen.get(session_id)
            if known is not None and looked is not None and looked[0] == now:
                headers[session_id], seen[session_id] = known, looked
            elif (note := self._notes.find(session_id, now)) is not None:
                headers[session_id], seen[session_id] = note.header, (now, True)
            elif (loaded := self._read_files(session_id)) is not None:
                self._damages.note(session_id, loaded)
                headers[session_id] = header_of(loaded.value)
                seen[session_id] = (now, not loaded.value.is_unsettled)
        self._headers, self._seen = headers, seen

    def _spend_of(self, session_id: str) -> Spend:
        if self._lock is None:
            return self._heads[session_id][1].spend if session_id in self._heads else Spend(0, 0, 0.0, 0)
        header = self._headers.get(session_id)
        return header.spend if header is not None else super()._spend_of(session_id)

    def _has_failed(self, session_id: str) -> bool:
        header = self._headers.get(session_id)
        return header.failed if header is not None else super()._has_failed(session_id)

    def _is_there(self, session_id: str) -> bool:
        return super()._is_there(session_id) or session_id in self._headers

    def _named_blobs(self) -> set[str]:
        return super()._named_blobs().union(*(header.blobs for header in self._headers.values()))

    def _named_prompts(self) -> set[str]:
        return super()._named_prompts().union(*(header.prompts for header in self._headers.values()))

    async def _holder(self, turn_id: str) -> SessionValue | None:
        for look in (False, True):
            if look and self._lock is None:
                # All sessions are read only for a turn that is not found otherwise.
                await asyncio.to_thread(self._look_over)
            held = [id_ for id_, value in self._values.items() if turn_id in value.turns]
            known = (id_ for id_, header in self._headers.items() if header.may_hold(turn_id))
            for session_id in (*held, *known):
                value = await self._find(session_id)
                if value is not None and turn_id in value.turns:
                    return value
        return None

    async def load_usage(self, query: UsageQuery) -> tuple[UsageGroup, ...]:
        there = await self.session_ids()
        held = {id_: calls for id_, (_, calls) in self._unnoted.items()}
        if self._lock is not None:
            held |= {id_: value.all_calls() for id_, value in self._values.items()}
        return await asyncio.to_thread(lambda: sum_calls(self._each_call(there, held), query))

    def _each_call(self, there: Iterable[str], held: Mapping[str, tuple[ModelCall, ...]]) -> Iterator[ModelCall]:
        """The model calls of these sessions and of those that are gone, each once, a session at a time."""
        told: set[str] = set()
        for session_id in there:
            calls = held.get(session_id)
            if calls is None and (note := self._notes.find(session_id, self._codec.signature(session_id))) is not None:
                calls = note.calls
            if calls is None and (loaded := self._read_files(session_id)) is not None:
                calls = loaded.value.all_calls()
            told.update(call.id for call in calls or ())
            yield from calls or ()
        # What outlives a session is written before it goes: a deletion meanwhile, or one that was killed, leaves both.
        yield from (call for day in self._files.load("calls").values() for call in day if call.id not in told)

    async def session_ids(self) -> tuple[str, ...]:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._lock is None:
            return tuple(await asyncio.to_thread(self._codec.on_disk))
        return tuple(sorted((*self._values, *self._headers)))
