"""Searching a folder: a SQLite store in it has a copy of settled messages, and answers searches.

The first search makes the copy from the files, and each later one updates it; writes do not. The copy is never the
source of truth: a missing or damaged one is made again. Deleted sessions are removed from it first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from msgspec.structs import replace

from clew.errors import InternalError, NotSupported, StoreClosed, StoreError
from clew.store import unit as u
from clew.store.base import Cursor, Damage, SearchPage, SearchQuery, SessionQuery, Store
from clew.store.memory.session_value import SessionValue
from clew.transcript.message import MessageRow
from clew.transcript.metadata import STORE_KEYS, projection_of
from clew.transcript.session import Session
from clew.transcript.turn import Turn
from clew.transcript.turn_state import OPEN

__all__ = ["OpenCopy", "SearchCopy", "searched"]

OpenCopy = Callable[[Path, bool], Awaitable[Store]]
"""Opens the store at a path, for reading only or not."""

Load = Callable[[str], Awaitable[SessionValue | None]]
See = Callable[[Iterable[str] | None], dict[str, str]]
"""Returns the state of the files of these sessions, or of all sessions."""

_AT_ONCE: Final = 50
_SOON: Final = 2
"""The number of batches copied before a search that does not wait for all."""

log = logging.getLogger("clew.store")


class Look(NamedTuple):
    """The state of a session by which a change is detected: of its files, and of its hidden messages."""

    files: str
    hidden: str


def searched(value: SessionValue) -> dict[str, str]:
    """Return the seals of the searchable messages of a session: settled ones, also those of other programs."""
    settled = {id_ for turn in value.turns.values() if turn.status not in OPEN for id_ in value.links.get(turn.id, ())}
    return {
        id_: value.seals.get(id_) or row.seal
        for id_, row in value.messages.items()
        if id_ in value.seals or (id_ in settled and not value.journal.get(id_))
    }


class SearchCopy:
    """The copy of one folder. With ``read_only`` it is searched without an update."""

    def __init__(self, root: Path, open_copy: OpenCopy, *, read_only: bool) -> None:
        self._place = root / "clew" / "search"
        self._path = self._place / "index.db"
        self._open_copy = open_copy
        self._read_only = read_only
        self._store: Store | None = None
        self._looks: dict[str, Look] = {}
        self._changed: set[str] | None = None
        self._leaving: set[str] = set()
        self._closed = False
        self._copying: asyncio.Task[None] | None = None
        self._searching = asyncio.Lock()
        # Held for a few sessions at a time, so that a deletion does not wait until all are copied.
        self._writing = asyncio.Lock()

    def note(self, session_id: str) -> None:
        """Note that its files have changed or are gone. Before the first comparison of all sessions, nothing is
        noted."""
        self._leaving.discard(session_id)
        if self._changed is not None:
            self._changed.add(session_id)

    async def search(self, query: SearchQuery, see: See, load: Load) -> SearchPage:
        async with self._searching:
            if self._read_only:
                if not self._path.is_file():
                    what = f"{self._place.parent.parent} has no search index yet"
                    raise NotSupported(f"{what}; open it for writing and search once")
                # Opened for each search: the owner may have replaced the copy, without sessions deleted since.
                store = await self._open_copy(self._path, True)
                try:
                    return _without_prefixes(await store.search(query))
                finally:
                    await store.close()
            try:
                return await self._ask(query, see, load)
            except NotSupported:
                raise
            except (StoreError, InternalError):
                if self._closed:
                    raise
                # The copy can be made again, whatever the error is.
                async with self._writing:
                    await self._drop()
                return await self._ask(query, see, load)

    async def _ask(self, query: SearchQuery, see: See, load: Load) -> SearchPage:
        left = self._copying is not None
        if query.cursor is None:  # later pages use the copy of the first one
            left = await self._catch_up(see, load, None if query.wait else _SOON)
            if left and self._copying is None:
                self._copying = asyncio.get_running_loop().create_task(self._copy_all(see, load))
        page = await (await self._opened()).search(query)
        return _without_prefixes(replace(page, complete=page.complete and not left))

    async def _copy_all(self, see: See, load: Load) -> None:
        """Copy the sessions that a search did not wait for. Concurrent searches run in between."""
        try:
            left = True
            while left:
                async with self._searching:
                    left = await self._catch_up(see, load, 1)
        except (StoreError, InternalError, OSError) as error:
            log.warning("the search index in %s is not complete yet: %s", self._place, error)
        finally:
            self._copying = None

    async def rebuild(self, see: See, load: Load) -> None:
        async with self._searching:
            async with self._writing:
                await self._drop()
            await self._catch_up(see, load)
            await (await self._opened()).rebuild_search()

    async def forget(self, session_id: str) -> None:
        """Remove a session before it is deleted, so that it is not found any more even if the deletion fails."""
        async with self._writing:
            # Noted also for a search that has just begun to make the copy.
            self._leaving.add(session_id)
            if self._store is None and not self._path.is_file():
                return
            try:
                await self._opened()
                await self._take_out(session_id)
            except (StoreError, InternalError):
                await self._drop()

    async def verify(self, known: Mapping[str, tuple[str, dict[str, str]]]) -> Sequence[Damage]:
        """Return damage of the copy, which a search does not detect. ``known`` are the state of each session's files
        and the seals of its searchable messages."""
        if not self._path.is_file():
            return ()
        found: list[str] = []
        try:
            store = self._store or await self._open_copy(self._path, True)
            try:
                found += [damage.what for damage in await store.verify()]
                for session_id, copied in (await _copied(store)).items():
                    files, wanted = known.get(session_id, ("", {}))
                    if copied.files == files and await _seals(store, session_id) != wanted:
                        found.append(f"it holds other messages of session {session_id} than its files")
            finally:
                if store is not self._store:
                    await store.close()
        except StoreError as error:
            found.append(str(error))
        return tuple(Damage(f"the search index is damaged: {what}; remove {self._place}") for what in found)

    async def close(self) -> None:
        """Close the copy. A running search fails with ``store_closed``."""
        self._closed = True
        if self._copying is not None:
            self._copying.cancel()
            await asyncio.gather(self._copying, return_exceptions=True)
        async with self._writing:
            if self._store is not None:
                await self._store.close()
                self._store = None

    async def _opened(self) -> Store:
        if self._closed:
            raise StoreClosed("the store is closed")
        if self._store is None:
            try:
                self._store = await self._open_copy(self._path, False)
                self._looks = await _copied(self._store)
            except StoreError:
                await self._drop()
                self._store = await self._open_copy(self._path, False)
        return self._store

    async def _take_out(self, session_id: str) -> None:
        """Remove a session. It is forgotten only after that, so that an interrupted removal is repeated."""
        if self._store is not None and session_id in self._looks:
            await self._store.commit(u.Unit(session_id, (u.DeleteSession(),)))
            self._looks.pop(session_id, None)

    async def _drop(self) -> None:
        with contextlib.suppress(StoreError):
            if self._store is not None:
                await self._store.close()
        self._store, self._looks, self._changed = None, {}, None
        await asyncio.to_thread(shutil.rmtree, self._place, ignore_errors=True)

    async def _catch_up(self, see: See, load: Load, most: int | None = None) -> bool:
        """Copy changed sessions, at most ``most`` batches of them. Return whether some are left."""
        changed, self._changed = self._changed, set()
        try:
            now = await asyncio.to_thread(see, changed)
            async with self._writing:
                await self._opened()
                for session_id in self._looks.keys() - now.keys() if changed is None else ():
                    await self._take_out(session_id)
            stale = [id_ for id_, files in now.items() if id_ not in self._looks or self._looks[id_].files != files]
            soon = stale if most is None else stale[: most * _AT_ONCE]
            if self._changed is not None:  # otherwise the copy was dropped, and all are compared again
                self._changed.update(stale[len(soon) :])
            for first in range(0, len(soon), _AT_ONCE):
                async with self._writing:
                    store = await self._opened()
                    some = [id_ for id_ in soon[first : first + _AT_ONCE] if id_ not in self._leaving]
                    await asyncio.gather(*(self._copy(store, id_, now[id_], load) for id_ in some))
        except BaseException:
            self._changed = None
            raise
        return len(soon) < len(stale)

    async def _copy(self, store: Store, session_id: str, files: str, load: Load) -> None:
        value = await load(session_id)
        if value is None:
            await self._take_out(session_id)
            return
        wanted = searched(value)
        held = await _seals(store, session_id) if session_id in self._looks else {}
        if any(wanted.get(id_) != seal for id_, seal in held.items()):
            await self._take_out(session_id)
            held = {}
        rows = {id_: value.messages[id_] for id_ in wanted}
        gone = [(id_, projection_of(row.metadata)) for id_, row in rows.items() if any(projection_of(row.metadata))]
        look = Look(files, f"{crc32(repr(gone).encode()):08x}")
        writes: list[u.Write] = []
        if session_id not in self._looks:
            writes += _begin(value.session, look)
        else:
            if self._looks[session_id].hidden != look.hidden:
                kept = {id_: rows[id_].metadata for id_ in held}
                writes += [
                    u.PatchMessage(_prefixed(session_id, id_), 0, metadata, tuple(STORE_KEYS - metadata.keys()))
                    for id_, metadata in kept.items()
                ]
            title = {} if value.session.title is None else {"title": value.session.title}
            writes.append(u.PatchSession(metadata={**look._asdict(), **title}, drop=() if title else ("title",)))
        for id_ in wanted.keys() - held.keys():
            writes += _add(session_id, rows[id_], wanted[id_])
        await store.commit(u.Unit(session_id, tuple(writes)))
        self._looks[session_id] = look


def _begin(session: Session, look: Look) -> tuple[u.Write, ...]:
    """Return the session and one turn for all of its messages, since messages without a turn count as foreign."""
    turn = Turn(
        id=_prefixed(session.id, "turn"),
        session_id=session.id,
        parent_turn_id=None,
        created_at=session.created_at,
        status="completed",
        settled_at=session.created_at,
    )
    title = {} if session.title is None else {"title": session.title}
    bare = Session(
        id=session.id,
        agent=session.agent,
        model=session.model,
        created_at=session.created_at,
        updated_at=session.updated_at,
        owner=session.owner,
        metadata={**look._asdict(), **title},
    )
    return u.InsertSession(bare), u.OpenTurn(turn)


def _add(session_id: str, row: MessageRow, seal: str) -> tuple[u.Write, ...]:
    parts = tuple(replace(part, id=_prefixed(session_id, part.id)) for part in row.parts)
    copy = replace(row, id=_prefixed(session_id, row.id), session_id=session_id, parts=parts)
    return u.InsertMessage(copy), u.SealMessage(copy.id, seal), u.LinkMessage(_prefixed(session_id, "turn"), copy.id)


def _prefixed(session_id: str, id_: str) -> str:
    """Return an id that is unique even if a session's folder was copied by hand."""
    return f"{session_id}/{id_}"


def _without_prefixes(page: SearchPage) -> SearchPage:
    hits = (
        replace(hit, message_id=hit.message_id.partition("/")[2], part_id=hit.part_id.partition("/")[2])
        for hit in page.hits
    )
    return replace(page, hits=tuple(hits))


async def _seals(store: Store, session_id: str) -> dict[str, str]:
    return {id_.partition("/")[2]: seal for id_, seal in (await store.seals(session_id)).items()}


async def _copied(store: Store) -> dict[str, Look]:
    """Return the state of each session when it was copied."""
    found: dict[str, Look] = {}
    cursor: Cursor | None = None
    while True:
        page = await store.list_sessions(SessionQuery(limit=1000, cursor=cursor, kind="any"))
        for session in page.sessions:
            found[session.id] = Look(*(str(session.metadata.get(name)) for name in Look._fields))
        cursor = page.next
        if cursor is None:
            return found
