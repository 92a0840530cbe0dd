"""The engine: the facade every front uses, and the only place that puts stores, runtime and history together."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import random
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET

from clew import ids
from clew.clock import Clock, SystemClock
from clew.config import Config, config_folder, data_folder, default_store_url, load_config
from clew.errors import InternalError, InvalidInput, MessageNotFound, SessionBusy, SessionNotFound
from clew.live.base import Event, EventType, Live, Status
from clew.store.base import Cursor, LineSlice, SessionQuery, Store, get_session
from clew.store.location import Memory, SqliteFile, parse_url
from clew.store.unit import DeleteSession, InsertSession, PatchSession, Refused, Unit, Write
from clew.transcript.chunk import chunk_dict
from clew.transcript.gate import check_value
from clew.transcript.line import line_messages
from clew.transcript.message import Message, shown
from clew.transcript.session import Model, Session, parse_model
from clew.transcript.view import model_view, visible_view

if TYPE_CHECKING:
    # What runs stand on is imported when an engine is opened: importing clew stays quick.
    from clew.providers.base import Providers
    from clew.runtime.answers import Decision
    from clew.runtime.desk import OnBusy, Submission
    from clew.runtime.hooks import Hook, HookName
    from clew.runtime.host import Host
    from clew.tools.base import Tool

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
    providers: Providers | None = None,
    tools: Iterable[Tool] = (),
    live: Live | None = None,
) -> AsyncIterator[Engine]:
    """Open a store and everything around it.

    ``url`` is ``sqlite:///file.db`` or ``memory:``; without one, ``CLEW_STORE`` or the user's data folder. What an
    earlier process left unfinished is recovered before the engine is handed out. ``read_only`` takes no lock and
    works beside a running owner. ``tools`` are added to the built-in ones, ``providers`` replace the configured ones.
    """
    from clew.runtime.recovery import recover

    clock = clock or SystemClock()
    config = config or load_config()
    mint = ids.Mint(clock)
    store = await _open_store(parse_url(url or default_store_url()), config, read_only, clock, mint)
    try:
        if not read_only:
            await recover(store, mint, clock.now_ms())
        host = _compose(store, config, clock, mint, providers, tools, live)
        engine = Engine(host)
        try:
            yield engine
        finally:
            await engine.close()
    finally:
        await store.close()


def _compose(
    store: Store,
    config: Config,
    clock: Clock,
    mint: ids.Mint,
    providers: Providers | None,
    tools: Iterable[Tool],
    live: Live | None,
) -> Host:
    """Put together what every run stands on."""
    from clew.agents.catalog import AgentCatalog
    from clew.live.local import LocalLive
    from clew.permissions.rules import default_rules
    from clew.runtime.hooks import Hooks
    from clew.runtime.host import Host
    from clew.tools.builtin import BUILTIN

    offered = {tool.name: tool for tool in (*BUILTIN, *tools)}
    folder, spill = config_folder(), data_folder() / "spill"
    rules = default_rules(own=(data_folder(), *_store_files(store)), secret=(folder,), readable=(spill,))
    return Host(
        store=store,
        live=live or LocalLive(),
        providers=providers or _registry(config, clock),
        tools=offered,
        agents=lambda workspace: AgentCatalog.load(folder, workspace),
        # What may be read in a workspace is each agent's own to say; these hold for all of them.
        base_rules=tuple(rule for rule in rules if rule.pattern != "./**"),
        hooks=Hooks(),
        config=config,
        clock=clock,
        mint=mint,
        chance=random.random,
        spill=spill,
        config_folder=folder,
    )


def _registry(config: Config, clock: Clock) -> Providers:
    from clew.providers.registry import ProviderConfig, ProviderRegistry

    try:
        configured = msgspec.convert(config.providers, dict[str, ProviderConfig])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the providers in your configuration do not read: {error}") from error
    return ProviderRegistry(configured, default_model=config.default_model, clock=clock)


def _store_files(store: Store) -> list[Path]:
    """The files of a store that lies in one, wherever that is: often a project's own folder."""
    path = getattr(store, "path", None)
    if not isinstance(path, Path):
        return []
    real = path.resolve()
    return [real, *(real.with_name(real.name + suffix) for suffix in ("-wal", "-shm", ".owner"))]


async def _open_store(
    location: Memory | SqliteFile, config: Config, read_only: bool, clock: Clock, mint: ids.Mint
) -> Store:
    if isinstance(location, Memory):
        if read_only:
            raise InvalidInput("a memory store is new and empty: there is nothing to read in it")
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

    def __init__(self, host: Host) -> None:
        from clew.runtime.desk import Desk

        self.host = host
        self.store = host.store
        self.config = host.config
        self._clock = host.clock
        self._mint = host.mint
        self._desk = Desk(host)

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
        """A new, empty session.

        ``workspace_root`` must be a folder; it is kept as an absolute path without links. The model is the one given,
        else the agent's, else the default.
        """
        now = self._clock.now_ms()
        check_value([agent, title, dict(metadata or {})], "session")
        workspace = await asyncio.to_thread(_resolved, workspace_root) if workspace_root is not None else None
        catalog = await asyncio.to_thread(self.host.agents, workspace)
        manifest = catalog.get(agent or self.config.default_agent)
        bag = dict(metadata or {})
        if title is not None:
            bag["title"] = title
        session = Session(
            id=self._mint.session(self.store.capabilities.session_ids),
            agent=manifest.name,
            model=parse_model(model) if model is not None else manifest.model or self.host.providers.default_model(),
            workspace_root=str(workspace) if workspace is not None else None,
            metadata=bag,
            created_at=now,
            updated_at=now,
        )
        check_value(msgspec.to_builtins(session.model), "model")
        _check_title(bag.get("title"))
        await self._commit(session.id, InsertSession(session))
        self._publish("session_created", session.id)
        self.host.hooks.observe("session_create", session)
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
        parent = None if parent is None else self._session_id(parent)
        check_value([agent, workspace, q], "filter")
        query = SessionQuery(
            limit=limit,
            cursor=_parse_cursor(cursor),
            agent=agent,
            workspace=workspace,
            parent=parent,
            title=q,
            kind=kind,
            archived=archived,
            ephemeral=ephemeral,
        )
        page = await self.store.list_sessions(query)
        return SessionList(page.sessions, _format_cursor(page.next))

    async def rename_session(self, session_id: str, title: str) -> Session:
        """Give the session a title; an empty one takes it away. Its place in the list stays."""
        return await self.patch_session(session_id, title=title)

    async def archive_session(self, session_id: str, *, archived: bool = True) -> Session:
        """Put the session out of the list, or back into it. Nothing is removed."""
        return await self.patch_session(session_id, archived=archived)

    async def patch_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Change what is given, in one unit. ``metadata`` is merged key by key; a key set to None is removed."""
        _check_title(title)
        check_value([title, metadata], "session")
        merged = {key: value for key, value in (metadata or {}).items() if value is not None}
        drop = tuple(key for key, value in (metadata or {}).items() if value is None)
        _check_title(merged.get("title"))
        if title:
            merged["title"] = title
        elif title == "":
            drop = (*drop, "title")
        stamp = self._clock.now_ms() if archived else None
        archived_at = UNSET if archived is None else stamp
        return await self._patch(session_id, PatchSession(metadata=merged, drop=drop, archived_at=archived_at))

    async def delete_session(self, session_id: str, *, force: bool = False) -> None:
        """Remove the session for good, with its subagent sessions. Branches of it stay.

        Refused while a run is live, unless ``force``, which aborts it first.
        """
        session = await self.get_session(session_id)
        if self._desk.run_of(session.id) is not None and not force:
            raise SessionBusy("a run is in flight on this session; abort it, or force", session_id=session.id)
        gone = False
        try:
            await self._desk.drop(session.id)
            for child in await self.store.list_children(session.id):
                if child.kind == "subagent":
                    await self.delete_session(child.id, force=force)
            await self._commit(session.id, DeleteSession())
            gone = True
        finally:
            self._desk.forget(session.id, gone=gone)
        await asyncio.to_thread(shutil.rmtree, self.host.spill / session.id, ignore_errors=True)
        self._publish("session_deleted", session.id)
        self.host.hooks.observe("session_delete", session)

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
        session_id = self._session_id(session_id)
        if view not in ("visible", "all", "model"):
            raise InvalidInput(f"view must be visible, all or model, not {view!r}")
        if limit is not None and not 1 <= limit <= 500:
            raise InvalidInput(f"limit must be from 1 to 500, not {limit}")
        if before is not None:
            ids.check_client_message_id(before)
        if view == "all":
            return _page(await self._all_messages(session_id), limit, before)
        if view == "model":
            return _page(model_view((await self._line(session_id, None)).turns), limit, before)
        return await self._visible(session_id, limit, before)

    async def _visible(self, session_id: str, limit: int | None, before: str | None) -> list[Message]:
        # Most turns hold two messages; where they hold fewer, or the page lies further back, more are read.
        turns = None if limit is None else limit // 2 + 1
        while True:
            line = await self._line(session_id, turns)
            messages = visible_view(line.turns)
            place = _place(messages, before)
            if turns is None or line.complete or (place is not None and place >= (limit or 0)):
                return _page(messages, limit, before)
            turns *= 2

    async def _line(self, session_id: str, turns: int | None) -> LineSlice:
        line = await self.store.load_view(session_id, turns=turns, keep_damaged=True)
        if line is None:
            raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
        return line

    async def _all_messages(self, session_id: str) -> list[Message]:
        await get_session(self.store, session_id)
        rows = await self.store.load_messages(session_id, keep_damaged=True)
        tree = await self.store.load_tree(session_id)
        holder = {message_id: turn_id for turn_id, held in tree.links.items() for message_id in held}
        holder.update({message_id: turn.id for turn, message_id in line_messages(tree)})
        return [shown(row, holder.get(row.id)) for row in rows]

    # Runs

    async def submit(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        on_busy: OnBusy = "queue",
        attended: bool = True,
    ) -> Submission:
        """Send a prompt. It is durable when this returns; its run goes on by itself.

        On a busy session ``on_busy`` says what happens: ``queue`` it, ``reject`` it (``SessionBusy``), or
        ``interrupt`` what runs. ``message_id`` is the client's own id: sending it again changes nothing.
        """
        if message_id is not None:
            ids.check_client_message_id(message_id)
        return await self._desk.submit(
            self._session_id(session_id),
            prompt,
            model=model,
            agent=agent,
            message_id=message_id,
            on_busy=on_busy,
            attended=attended,
        )

    async def run(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
    ) -> AsyncIterator[dict[str, Any]]:
        """Send a prompt and follow its stream: AI SDK chunks as dicts, each already durable.

        Leaving the loop early detaches; the run goes on. Refusals raise before the first chunk.
        """
        submission = await self.submit(
            session_id,
            prompt,
            model=model,
            agent=agent,
            message_id=message_id,
            on_busy="reject",
            attended=attended,
        )
        run = self._desk.run_of(session_id)
        if run is not None and run.user_message_id == submission.message_id:
            async for batch in run.stream.follow(replay=False):
                for chunk in batch:
                    yield chunk_dict(chunk)

    async def attach(self, session_id: str) -> AsyncIterator[dict[str, Any]]:
        """Follow what runs now, from its message's first part; ends at once when nothing does."""
        session = await self.get_session(session_id)
        stream = self.host.live.find_stream(session.id)
        if stream is not None:
            async for batch in stream.follow(replay=True):
                for chunk in batch:
                    yield chunk_dict(chunk)

    async def abort(self, session_id: str) -> bool:
        """Stop what runs on the session, or deny what waits there. True when there was something."""
        session = await self.get_session(session_id)
        return await self._desk.abort(session.id)

    async def continue_turn(self, session_id: str) -> Submission:
        """Go on: an unanswered turn, one at its step limit, one that failed or was aborted, or a paused queue."""
        return await self._desk.continuing.go_on(self._session_id(session_id))

    async def get_status(self, session_id: str) -> Status:
        session = await self.get_session(session_id)
        return await self._desk.status(session.id)

    def is_idle(self, session_id: str) -> bool:
        """Nothing runs on the session in this process."""
        return self._desk.run_of(session_id) is None

    async def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        """The present status, then each change."""
        changes = self.host.live.watch_status(self._session_id(session_id))
        last = await self.get_status(session_id)
        yield last
        async for status in changes:
            if status != last:
                last = status
                yield status

    async def answer(self, session_id: str, approval_id: str, decision: Decision, reason: str | None = None) -> int:
        """Answer a request for approval; how many of the step are still open."""
        check_value([approval_id, reason], "answer")
        return await self._desk.answers.answer(self._session_id(session_id), approval_id, decision, reason)

    async def answer_question(self, session_id: str, tool_call_id: str, output: Any) -> int:
        """Answer a question the model asked."""
        check_value([tool_call_id, output], "answer")
        return await self._desk.answers.answer_question(self._session_id(session_id), tool_call_id, output)

    async def queue(self, session_id: str) -> list[Message]:
        """The messages that wait, in the order they will be fired."""
        waiting = await self._desk.queue.load(self._session_id(session_id))
        return [shown(entry.message, None) for entry in waiting]

    async def cancel_queued(self, session_id: str, message_id: str) -> None:
        """Take a message out of the queue, by clew's id or the client's own."""
        session = await self.get_session(session_id)
        ids.check_client_message_id(message_id)
        rows = await self.store.find_client_message(session.id, message_id)
        named = [row.id for row in sorted(rows, key=lambda row: "queued_at" not in row.metadata)]
        if not named and await self.store.find_message(session.id, message_id) is None:
            raise MessageNotFound(f"there is no message {message_id}", message_id=message_id)
        await self._desk.queue.cancel(session.id, named[0] if named else message_id)

    def subscribe(self) -> AsyncIterator[Event]:
        """What happens on this host, from now on."""
        return self.host.live.subscribe()

    def hook(self, name: HookName, hook: Hook) -> None:
        """Add a hook; see the how-to for what each is given and may do."""
        self.host.hooks.add(name, hook)

    async def close(self) -> None:
        """End every run, settled as interrupted. Called when the engine's context is left."""
        await self._desk.close()
        await self.host.hooks.drain()
        await self.host.providers.close()

    # Care

    async def backup(self, target: str | Path) -> None:
        """A consistent copy of the store, made while it is in use."""
        await self.store.backup(Path(target))

    # Inside

    def _session_id(self, value: str) -> str:
        return ids.check_session_id(value, self.store.capabilities.session_ids)

    async def _patch(self, session_id: str, write: Write) -> Session:
        await self._commit(self._session_id(session_id), write)
        self._publish("session_updated", session_id)
        return await self.get_session(session_id)

    def _publish(self, kind: EventType, session_id: str) -> None:
        self.host.live.publish(Event(kind, {"session_id": session_id}))

    async def _commit(self, session_id: str, *writes: Write) -> None:
        outcome = await self.store.commit(Unit(session_id, writes, sync="power"))
        if isinstance(outcome, Refused):
            if outcome.reason == "session_not_found":
                raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
            raise InternalError(f"a unit was refused: {outcome.reason}", session_id=session_id)


def _resolved(folder: str | Path) -> Path:
    check_value(str(folder), "workspace_root")
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise InvalidInput(f"the workspace {str(folder)!r} is not a folder")
    return path


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
