"""Sessions: list, make, look at, change, remove; and the messages of one."""

from __future__ import annotations

from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from clew.engine import Engine
from clew.errors import InvalidInput
from clew.fronts.http import query
from clew.fronts.http.answer import answer, nothing, session_shape
from clew.fronts.http.body import read
from clew.fronts.http.route import route
from clew.live.base import Status
from clew.transcript.session import Session

__all__ = ["Sessions"]


class NewSession(msgspec.Struct):
    """What a new session may be given."""

    agent: str | None = None
    workspace_root: str | None = None
    model: str | dict[str, Any] | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    system_prompt: str | None = None


class SessionPatch(msgspec.Struct):
    """What of a session can be changed. ``agent`` is named here only to be refused."""

    title: str | UnsetType | None = UNSET
    archived: bool | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    agent: Any = UNSET


class Sessions:
    """The routes under ``/api/sessions`` that touch no run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[BaseRoute]:
        return [
            route("/api/sessions", GET=self._list, POST=self._create),
            route("/api/sessions/{id}", GET=self._get, PATCH=self._patch, DELETE=self._delete),
            route("/api/sessions/{id}/messages", GET=self._messages),
        ]

    async def _list(self, request: Request) -> Response:
        kind = query.choice(request, "kind", ("chat", "subagent", "any"), "chat")
        limit = query.number(request, "limit")
        page = await self._engine.list_sessions(
            limit=50 if limit is None else limit,
            cursor=query.text(request, "cursor"),
            agent=query.text(request, "agent"),
            workspace=query.text(request, "workspace"),
            parent=query.text(request, "parent"),
            q=query.text(request, "q"),
            kind=cast(Literal["chat", "subagent", "any"], kind),
            archived=query.flag(request, "archived"),
            ephemeral=query.flag(request, "ephemeral"),
        )
        statuses = await self._statuses(page.sessions)
        shapes = [session_shape(session, statuses[session.id]) for session in page.sessions]
        return answer({"sessions": shapes, "next_cursor": page.next_cursor})

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

    async def _get(self, request: Request) -> Response:
        return await self._shown(await self._engine.get_session(request.path_params["id"]))

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

    async def _delete(self, request: Request) -> Response:
        await self._engine.delete_session(request.path_params["id"], force=query.flag(request, "force"))
        return nothing()

    async def _messages(self, request: Request) -> Response:
        view = query.choice(request, "view", ("visible", "all", "model"), "visible")
        messages = await self._engine.messages(
            request.path_params["id"],
            view=cast(Literal["visible", "all", "model"], view),
            limit=query.number(request, "limit"),
            before=query.text(request, "before"),
        )
        return answer({"messages": messages})

    async def _shown(self, session: Session) -> Response:
        return answer(session_shape(session, await self._engine.get_status(session.id)))
