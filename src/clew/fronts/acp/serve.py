"""The agent side of the protocol. Each method calls an engine operation, with the same checks as HTTP."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import clew
from clew.actor import acting_as, local_user
from clew.errors import (
    ClewError,
    Conflict,
    InvalidInput,
    NotFound,
    PermissionDenied,
    SessionBusy,
    SessionNotFound,
    StoreError,
    StoreUnavailable,
)
from clew.fronts.acp import params as a
from clew.fronts.acp.commands import available_commands, find_command
from clew.fronts.acp.content import parts_of
from clew.fronts.acp.options import check_value, config_options, mode_state
from clew.fronts.acp.rpc import (
    INVALID_REQUEST,
    MAX_LINE_BYTES,
    Answer,
    Connection,
    Handler,
    Read,
    Refused,
    Write,
    refusal_of,
)
from clew.fronts.acp.session import OpenSession, Prompt
from clew.live.base import Event
from clew.mcp_server import McpServer, check_servers
from clew.session.api import Operations
from clew.transcript import part as p
from clew.transcript.session import Session

__all__ = ["Editor", "serve"]

log = logging.getLogger("clew.acp")
PROTOCOL_VERSION: Final = 1
_RECONNECT_S: Final = (0.2, 0.5, 1.0, 2.0)
_PAGE: Final = 50
_NAME_INVALID: Final = re.compile(r"[^a-z0-9]+", re.ASCII)
_MAX_SERVER_NAME: Final = 32

FindAgain = Callable[[], Awaitable[Operations]]
NewSession = Callable[[Any, Path], Awaitable[Session]]
"""Creates a session that works in a folder."""


class Editor:
    """The client: its capabilities and open sessions. Tools that use the editor's files share it."""

    def __init__(self) -> None:
        self.connection: Connection | None = None
        self.client = a.ClientCapabilities()
        self.sessions: dict[str, OpenSession] = {}


async def serve(
    engine: Operations,
    read: Read,
    write: Write,
    *,
    new_session: NewSession,
    find_again: FindAgain | None = None,
    editor: Editor | None = None,
    longest_line: int = MAX_LINE_BYTES,
) -> None:
    """Serve one client until it closes its end. ``find_again`` reconnects to a server; without it, the engine is one
    of this process."""
    agent = _Agent(engine, new_session, editor or Editor())
    handler = Handler(agent.find_request, agent.find_notification, agent.release_prompts)
    connection = Connection(read, write, handler, longest_line=longest_line)
    agent.editor.connection = connection
    with acting_as(local_user(), "acp"):
        listening = asyncio.create_task(agent.listen(find_again))
    try:
        await agent.listens.wait()
        with acting_as(local_user(), "acp"):
            await connection.run()
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        await asyncio.gather(*(one.leave() for one in agent.editor.sessions.values()))


class _Agent:
    def __init__(self, engine: Operations, new_session: NewSession, editor: Editor) -> None:
        self.engine = engine
        self.editor = editor
        self.listens = asyncio.Event()
        self._new_session = new_session
        self._initialized = False
        self._requests: Mapping[str, tuple[type[Any], Callable[[Any], Awaitable[Any]]]] = {
            "initialize": (a.Initialize, self._initialize),
            "authenticate": (a.Authenticate, self._authenticate),
            "session/new": (a.NewSession, self._new),
            "session/load": (a.OpenedSession, self._load),
            "session/resume": (a.OpenedSession, self._resume),
            "session/fork": (a.OpenedSession, self._fork),
            "session/prompt": (a.Prompt, self._prompt),
            "session/list": (a.ListSessions, self._list),
            "session/close": (a.NamedSession, self._close),
            "session/delete": (a.NamedSession, self._delete),
            "session/set_mode": (a.SetMode, self._set_mode),
            "session/set_config_option": (a.SetOption, self._set_option),
            "session/set_title": (a.SetTitle, self._set_title),
            "session/archive": (a.NamedSession, lambda given: self._archive(given, archived=True)),
            "session/unarchive": (a.NamedSession, lambda given: self._archive(given, archived=False)),
        }

    def find_request(self, method: str) -> Callable[[Any], Awaitable[Any]] | None:
        if method == "session/cancel":
            raise Refused(INVALID_REQUEST, "session/cancel is a notification: send it without an id")
        found = self._requests.get(method)
        if found is None:
            return None
        kind, run = found

        async def ask(given: Any) -> Any:
            if not self._initialized and method != "initialize":
                raise Refused(INVALID_REQUEST, "call initialize first")
            return await run(a.read(given, kind))

        return ask

    def find_notification(self, method: str) -> Callable[[Any], Awaitable[None]] | None:
        return self._cancel if method == "session/cancel" else None

    def release_prompts(self) -> None:
        for opened in self.editor.sessions.values():
            opened.release_prompts()

    # Handshake

    async def _initialize(self, given: a.Initialize) -> Any:
        self._initialized = True
        self.editor.client = given.client_capabilities or a.ClientCapabilities()
        return {
            # The newest version clew supports; the client decides whether to go on with it.
            "protocolVersion": PROTOCOL_VERSION,
            "agentInfo": {"name": "clew", "title": "clew", "version": clew.__version__},
            "authMethods": [],
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": True, "sse": False},
                "sessionCapabilities": {
                    "list": {},
                    "resume": {},
                    "close": {},
                    "delete": {},
                    "fork": {},
                    "title": {},
                    "archive": {},
                },
            },
        }

    async def _authenticate(self, given: a.Authenticate) -> Any:
        raise InvalidInput("authentication is not needed; model keys are configured where clew runs")

    # Sessions

    async def _new(self, given: a.NewSession) -> Any:
        servers = _check_request(given)
        session = await self._new_session(self.engine, Path(given.cwd))
        async with self._open_new(session) as opened:
            return await self._opened(opened, session, servers, sessionId=session.id)

    async def _load(self, given: a.OpenedSession) -> Any:
        async with self._reopen(given) as (opened, session, servers):
            for message in await self.engine.messages(session.id):
                await opened.send_message(message)
            return await self._opened(opened, session, servers)

    async def _resume(self, given: a.OpenedSession) -> Any:
        async with self._reopen(given) as (opened, session, servers):
            for message in await self.engine.messages(session.id, limit=_PAGE):
                opened.updates.mark_sent(message.id, message.parts)
            return await self._opened(opened, session, servers)

    async def _fork(self, given: a.OpenedSession) -> Any:
        servers = _check_request(given)
        parent = await self.engine.get_session(given.session_id)
        _check_folder(parent, given.cwd)
        if parent.head_turn_id is None:
            raise InvalidInput("this session has no messages yet; create a new one")
        session = await self.engine.fork(parent.head_turn_id)
        async with self._open_new(session) as opened:
            for message in await self.engine.messages(session.id, limit=_PAGE):
                opened.updates.mark_sent(message.id, message.parts)
            return await self._opened(opened, session, servers, sessionId=session.id)

    @contextlib.asynccontextmanager
    async def _open_new(self, session: Session) -> AsyncIterator[OpenSession]:
        """Open a new session. If its request fails, the session is deleted: the client never got its id."""
        try:
            yield self._open(session)
        except BaseException as error:
            self.editor.sessions.pop(session.id, None)
            if isinstance(error, ClewError):
                with contextlib.suppress(ClewError):
                    await self.engine.delete_session(session.id)
            raise

    @contextlib.asynccontextmanager
    async def _reopen(self, given: a.OpenedSession) -> AsyncIterator[tuple[OpenSession, Session, dict[str, McpServer]]]:
        """Open an existing session. On failure or cancellation it is open only if it was before."""
        servers = _check_request(given)
        session = await self.engine.get_session(given.session_id)
        _check_folder(session, given.cwd)
        before = self.editor.sessions.pop(session.id, None)
        opened = self._open(session)
        try:
            if before is not None:
                opened.take_over(before)
                await before.leave()
            yield opened, session, servers
        except BaseException:
            if before is not None:
                opened.follow()
            elif self.editor.sessions.get(session.id) is opened:
                del self.editor.sessions[session.id]
            raise

    def _open(self, session: Session) -> OpenSession:
        assert self.editor.connection is not None
        opened = OpenSession(session, lambda: self.engine, self.editor.connection, self.editor.client)
        opened.options_changed = lambda: self._send_options(opened)
        # Events are queued from here on, and sent after the response.
        self.editor.sessions[session.id] = opened
        return opened

    async def _opened(
        self, opened: OpenSession, session: Session, servers: dict[str, McpServer], **more: Any
    ) -> Answer:
        """Return the response with the session's options; updates of the session follow it."""
        if servers:
            try:
                await self.engine.give_mcp_servers(session.id, servers)
            except NotFound as error:
                if isinstance(error, SessionNotFound):
                    raise
                # Not allowed for owners of a part of the store: MCP servers start programs.
                raise InvalidInput("your token does not allow MCP servers; remove them in the editor") from error
        options = await self._options(session, opened)

        def then() -> None:
            opened.follow()
            opened.run_in_background(lambda: self._greet(opened))

        return Answer({**more, "modes": mode_state(session), "configOptions": options}, then)

    async def _greet(self, opened: OpenSession) -> None:
        commands = available_commands(await self.engine.prompts())
        await opened.send({"sessionUpdate": "available_commands_update", "availableCommands": commands})

    async def _list(self, given: a.ListSessions) -> Any:
        if given.cwd is not None:
            _check_absolute(given.cwd)
        page = await self.engine.list_sessions(limit=_PAGE, cursor=given.cursor, workspace=given.cwd)
        result: dict[str, Any] = {"sessions": [_info(session) for session in page.sessions]}
        return result if page.next_cursor is None else {**result, "nextCursor": page.next_cursor}

    async def _close(self, given: a.NamedSession) -> Any:
        opened = self._get(given.session_id)
        # Before waiting: a session reopened under this id meanwhile must not be removed.
        del self.editor.sessions[given.session_id]
        await opened.close()
        return {}

    async def _delete(self, given: a.NamedSession) -> Any:
        try:
            await self.engine.delete_session(given.session_id)
        except SessionBusy as error:
            raise SessionBusy(
                "this session is running: stop it (session/cancel, or Stop on the page), then delete it",
                session_id=given.session_id,
            ) from error
        opened = self.editor.sessions.pop(given.session_id, None)
        if opened is not None:
            opened.remove()
            await opened.leave()
        return {}

    async def _set_title(self, given: a.SetTitle) -> Any:
        await self.engine.rename_session(given.session_id, given.title)
        return {}

    async def _archive(self, given: a.NamedSession, *, archived: bool) -> Any:
        await self.engine.archive_session(given.session_id, archived=archived)
        return {}

    # Prompts

    async def _prompt(self, given: a.Prompt) -> Any:
        opened = self._get(given.session_id)
        with opened.arriving() as prompt:
            try:
                return {"stopReason": await self._run(opened, prompt, parts_of(given.prompt))}
            except ClewError:
                if not prompt.cancelled:
                    raise
                return {"stopReason": "cancelled"}

    async def _run(self, opened: OpenSession, prompt: Prompt, parts: list[dict[str, Any]]) -> str:
        if not parts:
            raise InvalidInput("the prompt is empty")
        command, rest = find_command(parts, await self.engine.prompts())
        if command is not None:
            return await command.run(opened, self.engine, rest, prompt)
        return await opened.prompt(prompt, [p.text_part(rest)] if rest else parts)

    async def _cancel(self, given: Any) -> None:
        await self._get(a.read(given, a.NamedSession).session_id).cancel()

    # Choices

    async def _set_mode(self, given: a.SetMode) -> Any:
        await self._choose(self._get(given.session_id), "mode", given.mode_id)
        return {}

    async def _set_option(self, given: a.SetOption) -> Any:
        opened = self._get(given.session_id)
        await self._choose(opened, given.config_id, given.value)
        return {"configOptions": await self._options(await self.engine.get_session(opened.id), opened)}

    async def _choose(self, opened: OpenSession, config_id: str, value: object) -> None:
        session = await self.engine.get_session(opened.id)
        chosen = check_value(await self._options(session, opened), config_id, value)
        if config_id == "effort":
            opened.choice.variant = None if chosen == "default" else chosen
        elif config_id == "agent":
            opened.choice.agent = None if chosen == session.agent else chosen
        else:
            opened.choice.variant = None if config_id == "model" else opened.choice.variant
            await self.engine.patch_session(opened.id, **{config_id: chosen})  # type: ignore[arg-type]

    async def _options(self, session: Session, opened: OpenSession) -> list[dict[str, Any]]:
        agents = await self.engine.agents(session.workspace_root)
        return config_options(session, opened.choice, await self.engine.models(), agents)

    async def _send_options(self, opened: OpenSession) -> None:
        options = await self._options(await self.engine.get_session(opened.id), opened)
        await opened.send({"sessionUpdate": "config_option_update", "configOptions": options})

    def _get(self, session_id: str) -> OpenSession:
        opened = self.editor.sessions.get(session_id)
        if opened is None:
            raise SessionNotFound("this session is not open here; load or resume it first", session_id=session_id)
        return opened

    # Events

    async def listen(self, find_again: FindAgain | None) -> None:
        """Pass events on to the open sessions. Reconnect when the server is gone, for as long as it takes."""
        while True:
            try:
                await self._hear(self.engine.subscribe(), greets=find_again is not None)
            except (ClewError, StopAsyncIteration) as error:
                log.warning("the engine is gone; reconnecting: %s", error)
            if find_again is not None:
                self._fail(
                    StoreUnavailable("connection to the server lost; the conversation is saved. Try again in a moment")
                )
                self.engine = await self._find_engine(find_again)

    async def _hear(self, events: AsyncIterator[Event], *, greets: bool) -> None:
        if greets:
            # A server sends a first event once it is subscribed, so that none is missed.
            await anext(events)
        self.listens.set()
        for opened in self.editor.sessions.values():
            opened.hear(None)
        async for event in events:
            concerned = self.editor.sessions.get(str(event.data.get("session_id")))
            if concerned is not None:
                concerned.hear(event)

    def _fail(self, error: ClewError) -> None:
        for opened in self.editor.sessions.values():
            opened.fail(refusal_of(error))

    async def _find_engine(self, find_again: FindAgain) -> Operations:
        waits = iter(_RECONNECT_S)
        wait = next(waits)
        while True:
            await asyncio.sleep(wait)
            wait = next(waits, wait)
            with contextlib.suppress(StoreError, Conflict, PermissionDenied):
                return await find_again()


def _check_request(given: a.NewSession | a.OpenedSession) -> dict[str, McpServer]:
    """Check the folder and the MCP servers before anything is done; return the servers."""
    _check_absolute(given.cwd)
    if given.additional_directories:
        raise InvalidInput("additionalDirectories are not supported: a session works in one folder")
    return _name_servers(given.mcp_servers)


def _check_absolute(cwd: str) -> None:
    if not cwd.startswith("/"):
        raise InvalidInput(f"cwd must be an absolute path, not {cwd[:200]!r}")


def _check_folder(session: Session, cwd: str) -> None:
    """Raise unless the session works in the folder that the editor shows."""
    root = session.workspace_root
    if root is not None and os.path.realpath(cwd) != os.path.realpath(root):
        raise InvalidInput(f"this session works in {root}: open that folder, or create a session in {cwd}")


def _info(session: Session) -> dict[str, Any]:
    updated = datetime.fromtimestamp(session.updated_at / 1000, UTC).isoformat(timespec="milliseconds")
    # The protocol requires a path, also for a session without a folder.
    info = {"sessionId": session.id, "cwd": session.workspace_root or "/", "updatedAt": updated.replace("+00:00", "Z")}
    return info if session.title is None else {**info, "title": session.title}


def _name_servers(given: Sequence[a.McpServer]) -> dict[str, McpServer]:
    """Return the servers by names valid in tool names; a second server of the same name gets a number."""
    servers: dict[str, McpServer] = {}
    for server in given:
        plain = _NAME_INVALID.sub("-", server.name.lower()).strip("-")[:_MAX_SERVER_NAME].strip("-") or "server"
        name, number = plain, 1
        while name in servers:
            number += 1
            name = f"{plain[: _MAX_SERVER_NAME - 4]}-{number}"
        if server.type == "sse":
            raise InvalidInput(f"MCP server {server.name!r}: SSE transport is not supported; use http")
        headers, env = ({pair.name: pair.value for pair in pairs} for pairs in (server.headers, server.env))
        if server.url is not None:
            servers[name] = McpServer(url=server.url, headers=headers)
        else:
            servers[name] = McpServer(command=server.command, args=server.args, env=env)
    check_servers(servers)
    return servers
