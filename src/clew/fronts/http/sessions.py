"""Sessions: list, make, look at, change, remove; and the messages of one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from clew.engine import Engine
from clew.errors import InvalidInput
from clew.fronts.http import query
from clew.fronts.http.answer import answer, nothing
from clew.fronts.http.body import Nothing, read
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import FileList, MessageList, ModelName, SessionPage
from clew.fronts.shape import SessionShape, session_shape
from clew.live.base import Status
from clew.transcript.message import Message
from clew.transcript.session import Session

__all__ = ["Sessions"]


class NewSession(msgspec.Struct):
    """What a new session may be given."""

    agent: str | None = None
    workspace_root: str | None = None
    model: ModelName | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    system_prompt: str | None = None


class SessionPatch(msgspec.Struct):
    """What of a session can be changed. ``agent`` is named here only to be refused."""

    title: str | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    agent: Any = UNSET


class ListQuery(msgspec.Struct):
    """Which sessions are listed. ``q`` is looked for in titles."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: str | None = None
    agent: str | None = None
    workspace: str | None = None
    parent: str | None = None
    q: str | None = None
    kind: Literal["chat", "subagent", "any"] = "chat"
    archived: bool = False
    ephemeral: bool = False


class DeleteQuery(msgspec.Struct):
    """``force`` aborts what runs."""

    force: bool = False


class MessagesQuery(msgspec.Struct):
    """Which messages are shown. ``before`` pages back from one."""

    view: Literal["visible", "all", "model"] = "visible"
    limit: Annotated[int, Meta(ge=1, le=500)] | None = None
    before: str | None = None


class Sessions:
    """The routes under ``/api/sessions`` that touch no run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[BaseRoute]:
        return [
            route("/api/sessions", GET=self._list, POST=self._create),
            route("/api/sessions/{id}", GET=self._get, PATCH=self._patch, DELETE=self._delete),
            route("/api/sessions/{id}/messages", GET=self._messages),
            route("/api/sessions/{id}/messages/{message_id}/accept", POST=self._accept),
            route("/api/sessions/{id}/files", GET=self._files),
        ]

    @operation("Sessions, newest first.", {200: SessionPage}, query=ListQuery, refuses=(400,))
    async def _list(self, request: Request) -> Response:
        page = await self._engine.list_sessions(**msgspec.structs.asdict(query.read(request, ListQuery)))
        statuses = await self._statuses(page.sessions)
        shapes = [session_shape(session, statuses[session.id]) for session in page.sessions]
        return answer(SessionPage(shapes, page.next_cursor))

    async def _statuses(self, sessions: tuple[Session, ...]) -> dict[str, Status]:
        """What each is doing. Only those that ran here, or have something open, can be doing anything."""
        live = self._engine.host.live
        known = {session.id: live.status(session.id) for session in sessions}
        unsettled: frozenset[str] = frozenset()
        if any(status is None for status in known.values()):
            unsettled = frozenset(await self._engine.store.unsettled_sessions())
        statuses: dict[str, Status] = {}
        for session_id, status in known.items():
            if status is None and session_id in unsettled:
                status = await self._engine.get_status(session_id)
            statuses[session_id] = status or Status("idle")
        return statuses

    @operation("A new, empty session.", {201: SessionShape}, body=NewSession)
    async def _create(self, request: Request) -> Response:
        body = await read(request, NewSession)
        metadata = dict(body.metadata or {})
        if body.system_prompt is not None:
            metadata["system_prompt"] = body.system_prompt
        session = await self._engine.create_session(
            model=body.model,
            agent=body.agent,
            workspace_root=body.workspace_root,
            title=body.title,
            metadata=metadata,
        )
        return answer(session_shape(session, Status("idle")), 201)

    @operation("A session.", {200: SessionShape})
    async def _get(self, request: Request) -> Response:
        return await self._shown(await self._engine.get_session(request.path_params["id"]))

    @operation("Change what is given.", {200: SessionShape}, body=SessionPatch, refuses=(409,))
    async def _patch(self, request: Request) -> Response:
        session = await self._engine.get_session(request.path_params["id"])
        body = await read(request, SessionPatch)
        if body.agent is not UNSET:
            raise InvalidInput("the agent of a session never changes; name another for one prompt")
        changes: dict[str, Any] = {}
        if body.title is not UNSET:
            changes["title"] = body.title or ""
        if body.archived is not UNSET:
            changes["archived"] = body.archived
        if body.metadata is not UNSET:
            changes["metadata"] = body.metadata
        if changes:
            session = await self._engine.patch_session(session.id, **changes)
        return await self._shown(session)

    @operation("Remove it for good.", {204: None}, query=DeleteQuery, refuses=(409,))
    async def _delete(self, request: Request) -> Response:
        await self._engine.delete_session(request.path_params["id"], force=query.read(request, DeleteQuery).force)
        return nothing()

    @operation("Its messages.", {200: MessageList}, query=MessagesQuery)
    async def _messages(self, request: Request) -> Response:
        asked = query.read(request, MessagesQuery)
        messages = await self._engine.messages(
            request.path_params["id"], view=asked.view, limit=asked.limit, before=asked.before
        )
        return answer(MessageList(messages))

    @operation("The files it has read and changed.", {200: FileList})
    async def _files(self, request: Request) -> Response:
        return answer(FileList(await self._engine.files(request.path_params["id"])))

    async def _shown(self, session: Session) -> Response:
        return answer(session_shape(session, await self._engine.get_status(session.id)))

    @operation("Accept a damaged message as it is now.", {200: Message}, body=Nothing, refuses=(409,))
    async def _accept(self, request: Request) -> Response:
        await read(request, Nothing)
        ids = request.path_params
        return answer(await self._engine.accept_message(ids["id"], ids["message_id"]))
