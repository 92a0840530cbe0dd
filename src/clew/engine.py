"""The engine: the facade every front uses, and the only place that puts stores, runtime and history together."""

from __future__ import annotations

import base64
import binascii
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from clew import ids
from clew.clock import Clock, SystemClock
from clew.config import Config, default_store_url, load_config
from clew.errors import InternalError, InvalidInput, MessageNotFound, SessionNotFound
from clew.runtime.recovery import recover
from clew.store.base import Cursor, SessionQuery, Store, get_session
from clew.store.location import Memory, SqliteFile, parse_url
from clew.store.unit import DeleteSession, InsertSession, PatchSession, Refused, Unit, Write
from clew.transcript.gate import check_value
from clew.transcript.line import LineTurn, line_messages
from clew.transcript.message import Message, shown
from clew.transcript.session import Model, Session, parse_model
from clew.transcript.view import find_compaction, model_view, visible_view

__all__ = ["Engine", "SessionList", "open"]

View = Literal["visible", "all", "model"]


class SessionList(msgspec.Struct, frozen=True):
    """A page of sessions, newest first. ``next_cursor`` is None on the last page."""

    sessions: tuple[Session, ...]
    next_cursor: str | None


@contextlib.asynccontextmanager
async def open(
    url: str | None = None,
    *,
    config: Config | None = None,
    read_only: bool = False,
    clock: Clock | None = None,
) -> AsyncIterator[Engine]:
    """Open a store and everything around it.

    ``url`` is ``sqlite:///file.db`` or ``memory:``; without one, ``CLEW_STORE`` or the user's data folder. What an
    earlier process left unfinished is recovered before the engine is handed out. ``read_only`` takes no lock and
    works beside a running owner.
    """
    clock = clock or SystemClock()
    config = config or load_config()
    mint = ids.Mint(clock)
    store = await _open_store(parse_url(url or default_store_url()), config, read_only, clock, mint)
    try:
        if not read_only:
            await recover(store, mint, clock.now_ms())
        yield Engine(store, config=config, clock=clock, mint=mint)
    finally:
        await store.close()


async def _open_store(
    location: Memory | SqliteFile, config: Config, read_only: bool, clock: Clock, mint: ids.Mint
) -> Store:
    if isinstance(location, Memory):
        from clew.store.memory import MemoryStore

        return MemoryStore()
    from clew.store.sql.sqlite.store import SqliteOptions, open_sqlite

    options = SqliteOptions(
        read_only=read_only,
        every_commit_full=config.durability == "power",
        window_ms=config.group_window_ms,
        lock_wait_ms=config.lock_wait_ms,
    )
    return await open_sqlite(location.path, options, clock=clock, mint=mint)


class Engine:
    """Sessions and what can be done with them. Made by :func:`clew.open`."""

    def __init__(self, store: Store, *, config: Config, clock: Clock, mint: ids.Mint) -> None:
        self.store = store
        self.config = config
        self._clock = clock
        self._mint = mint

    # Sessions

    async def create_session(
        self,
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        workspace_root: str | Path | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """A new, empty session."""
        now = self._clock.now_ms()
        bag = dict(metadata or {})
        if title is not None:
            bag["title"] = title
        session = Session(
            id=self._mint.session(self.store.capabilities.session_ids),
            agent=agent or self.config.default_agent,
            model=parse_model(model or self.config.default_model),
            workspace_root=str(workspace_root) if workspace_root is not None else None,
            metadata=bag,
            created_at=now,
            updated_at=now,
        )
        check_value([session.agent, session.workspace_root, msgspec.to_builtins(session.model)], "session")
        check_value(bag, "metadata")
        _check_title(bag.get("title"))
        await self._commit(session.id, InsertSession(session))
        return session

    async def get_session(self, session_id: str) -> Session:
        return await get_session(self.store, self._session_id(session_id))

    async def list_sessions(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        agent: str | None = None,
        workspace: str | None = None,
        parent: str | None = None,
        q: str | None = None,
        kind: Literal["chat", "subagent", "any"] = "chat",
        archived: bool = False,
        ephemeral: bool = False,
    ) -> SessionList:
        """Sessions, newest first. Archived, ephemeral and subagent sessions are left out unless asked for."""
        if not 1 <= limit <= 200:
            raise InvalidInput(f"limit must be from 1 to 200, not {limit}")
        if kind not in ("chat", "subagent", "any"):
            raise InvalidInput(f"kind must be chat, subagent or any, not {kind!r}")
        check_value([agent, workspace, parent, q], "filter")
        query = SessionQuery(
            limit=limit,
            cursor=_parse_cursor(cursor),
            agent=agent,
            workspace=workspace,
            parent=self._session_id(parent) if parent is not None else None,
            title=q,
            kind=kind,
            archived=archived,
            ephemeral=ephemeral,
        )
        page = await self.store.list_sessions(query)
        return SessionList(page.sessions, _format_cursor(page.next))

    async def rename_session(self, session_id: str, title: str) -> Session:
        """Give the session a title; an empty one takes it away. Its place in the list stays."""
        _check_title(title)
        check_value(title, "title")
        patch = PatchSession(metadata={"title": title}) if title else PatchSession(drop=("title",))
        return await self._patch(session_id, patch)

    async def archive_session(self, session_id: str, *, archived: bool = True) -> Session:
        """Put the session out of the list, or back into it. Nothing is removed."""
        return await self._patch(session_id, PatchSession(archived_at=self._clock.now_ms() if archived else None))

    async def delete_session(self, session_id: str) -> None:
        """Remove the session for good, with its subagent sessions. Branches of it stay."""
        session = await self.get_session(session_id)
        for child in await self.store.list_children(session.id):
            if child.kind == "subagent":
                await self.delete_session(child.id)
        await self._commit(session.id, DeleteSession())

    # Messages

    async def messages(
        self,
        session_id: str,
        *,
        view: View = "visible",
        limit: int | None = None,
        before: str | None = None,
    ) -> list[Message]:
        """The messages of a session, ready for ``useChat``.

        ``visible``: the line as it stands, what a compaction summarised left out. ``model``: what the next call
        would send, the summary first. ``all``: every row. ``limit`` takes that many from the end, ``before`` pages
        back from a message.
        """
        session = await self.get_session(session_id)
        if view not in ("visible", "all", "model"):
            raise InvalidInput(f"view must be visible, all or model, not {view!r}")
        if limit is not None and not 1 <= limit <= 500:
            raise InvalidInput(f"limit must be from 1 to 500, not {limit}")
        if before is not None:
            ids.check_client_message_id(before)
        if view == "all":
            return _page(await self._all_messages(session.id), limit, before)
        if view == "model":
            return _page(model_view((await self._line(session.id)).turns), limit, before)
        return await self._visible(session.id, limit, before)

    async def _visible(self, session_id: str, limit: int | None, before: str | None) -> list[Message]:
        if limit is None:
            return _page(visible_view((await self._line(session_id)).turns), limit, before)
        turns = limit
        while True:
            # Every turn holds a message, so a page needs at most as many turns, counted from where it ends.
            line = await self._line(session_id, turns=turns)
            messages = visible_view(line.turns)
            place = _place(messages, before)
            if line.complete or (place is not None and place >= limit):
                return _page(messages, limit, before)
            turns *= 2

    async def _line(self, session_id: str, turns: int | None = None) -> _Line:
        """The end of the line as far back as a view needs it: to the newest compaction's tail, or to ``turns``."""
        line = await self.store.load_line(session_id, turns=1, keep_damaged=True)
        if not line.turns:
            return _Line((), complete=True)
        compaction_turn = line.turns[-1].turn.compaction_turn_id
        if compaction_turn is None:
            line = await self.store.load_line(session_id, turns=turns, keep_damaged=True)
            return _Line(line.turns, line.complete)
        marker = await self.store.load_line(session_id, through=compaction_turn, turns=1, keep_damaged=True)
        compaction = find_compaction(marker.turns)
        tail = compaction.tail_start_id if compaction else None
        line = await self.store.load_line(session_id, back_to_message=tail, keep_damaged=True)
        return _Line(line.turns, complete=True)

    async def _all_messages(self, session_id: str) -> list[Message]:
        rows = await self.store.load_messages(session_id, keep_damaged=True)
        tree = await self.store.load_tree(session_id)
        holder = {message_id: turn_id for turn_id, held in tree.links.items() for message_id in held}
        holder.update({message_id: turn.id for turn, message_id in line_messages(tree)})
        return [shown(row, holder.get(row.id)) for row in rows]

    # Care

    async def backup(self, target: str | Path) -> None:
        """A consistent copy of the store, made while it is in use."""
        await self.store.backup(Path(target))

    # Inside

    def _session_id(self, value: str) -> str:
        return ids.check_session_id(value, self.store.capabilities.session_ids)

    async def _patch(self, session_id: str, write: Write) -> Session:
        await self._commit(self._session_id(session_id), write)
        return await self.get_session(session_id)

    async def _commit(self, session_id: str, *writes: Write) -> None:
        outcome = await self.store.commit(Unit(session_id, writes, sync="power"))
        if isinstance(outcome, Refused):
            if outcome.reason == "session_not_found":
                raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
            raise InternalError(f"a unit was refused: {outcome.reason}", session_id=session_id)


class _Line(msgspec.Struct, frozen=True):
    """A line as far back as a view needs it."""

    turns: tuple[LineTurn, ...]
    complete: bool


def _place(messages: Sequence[Message], before: str | None) -> int | None:
    """Where a page ends: before that message, found by the client's id first; at the end without one."""
    if before is None:
        return len(messages)
    for place, message in enumerate(messages):
        if message.metadata.get("client_message_id") == before:
            return place
    return next((place for place, message in enumerate(messages) if message.id == before), None)


def _page(messages: list[Message], limit: int | None, before: str | None) -> list[Message]:
    end = _place(messages, before)
    if end is None:
        raise MessageNotFound(f"there is no message {before} in this view", message_id=before)
    return messages[max(end - limit, 0) if limit is not None else 0 : end]


def _check_title(title: object) -> None:
    if title is not None and not (isinstance(title, str) and len(title) <= 500):
        raise InvalidInput("a title is text of at most 500 characters")


def _format_cursor(cursor: Cursor | None) -> str | None:
    return None if cursor is None else base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _parse_cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursor = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Cursor)
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise InvalidInput("this cursor was not made by clew; start again without one") from error
    check_value([cursor.updated_at, cursor.id], "cursor")
    return cursor
