"""History: going back, branching, making room, and looking at what was sent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.routing import BaseRoute

from clew.compaction.context import ContextReport
from clew.engine import Engine
from clew.errors import InvalidInput
from clew.fronts.http import query
from clew.fronts.http.answer import answer
from clew.fronts.http.body import Nothing, read
from clew.fronts.http.operation import operation
from clew.fronts.http.route import route
from clew.fronts.http.shapes import MessageList, ModelName, ReflogList
from clew.fronts.shape import RewoundShape, SessionShape, rewound_shape, session_shape
from clew.history.compactions import CompactionReport
from clew.history.report import RequestReport, TurnReport
from clew.history.tree import TreeView
from clew.runtime.compact import Compacted
from clew.transcript.session import Session

__all__ = ["History"]


class RewindBody(msgspec.Struct):
    """Which user message to go back to, and what for."""

    message_id: str
    mode: Literal["resend", "edit"] | None = None
    text: str | None = None
    run: bool | None = None
    restore_files: bool | None = None


class HeadBody(msgspec.Struct):
    """The turn to go to; null is the empty beginning."""

    turn_id: str | UnsetType | None = UNSET


class BranchBody(msgspec.Struct):
    """Where a branch leaves, and what is different in it."""

    from_message_id: str
    metadata: dict[str, Any] | None = None
    model: ModelName | None = None
    start_message_id: str | None = None


class ForkBody(msgspec.Struct):
    """What a fork is called."""

    label: str | None = None


class CompactBody(msgspec.Struct):
    """What a summary should not leave out."""

    focus: str | None = None


class ContextQuery(msgspec.Struct):
    """Whose window it is held against; the session's own model unless said."""

    model: str | None = None


class RequestQuery(msgspec.Struct):
    """Which step; the last one unless said."""

    step: Annotated[int, Meta(ge=0)] | None = None


class History:
    """The routes that move a session's head, copy its line, or change what of it is sent."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def routes(self) -> list[BaseRoute]:
        session, turn = "/api/sessions/{id}", "/api/turns/{id}"
        return [
            route(f"{session}/rewind", POST=self._rewind),
            route(f"{session}/unrewind", POST=self._unrewind),
            route(f"{session}/head", POST=self._set_head),
            route(f"{session}/reflog", GET=self._reflog),
            route(f"{session}/branch", POST=self._branch),
            route(f"{session}/tree", GET=self._tree),
            route(f"{session}/compact", POST=self._compact),
            route(f"{session}/prune", POST=self._prune),
            route(f"{session}/compactions/{{message_id}}", GET=self._compaction),
            route(f"{session}/context", GET=self._context),
            route(turn, GET=self._turn),
            route(f"{turn}/fork", POST=self._fork),
            route(f"{turn}/request", GET=self._request),
            route(f"{turn}/messages", GET=self._turn_messages),
        ]

    # Going back

    @operation("Go back to a user message.", {200: RewoundShape, 202: RewoundShape}, body=RewindBody, refuses=(409,))
    async def _rewind(self, request: Request) -> Any:
        body = await read(request, RewindBody)
        rewound = await self._engine.rewind(
            request.path_params["id"],
            body.message_id,
            mode=body.mode or "resend",
            text=body.text,
            run=body.run is True,
            restore_files=body.restore_files is True,
        )
        return answer(rewound_shape(rewound), 200 if rewound.submission is None else 202)

    @operation("Undo the newest rewind.", {200: RewoundShape}, body=Nothing, body_optional=True, refuses=(409,))
    async def _unrewind(self, request: Request) -> Any:
        await read(request, Nothing, optional=True)
        return answer(rewound_shape(await self._engine.unrewind(request.path_params["id"])))

    @operation("Go to any turn.", {200: RewoundShape}, body=HeadBody, refuses=(409,))
    async def _set_head(self, request: Request) -> Any:
        body = await read(request, HeadBody)
        if body.turn_id is UNSET:
            raise InvalidInput("turn_id is missing; null is the empty beginning")
        return answer(rewound_shape(await self._engine.set_head(request.path_params["id"], body.turn_id)))

    @operation("Every move of the head, newest first.", {200: ReflogList})
    async def _reflog(self, request: Request) -> Any:
        return answer(ReflogList(await self._engine.reflog(request.path_params["id"])))

    # Branches

    @operation("A session that starts as a copy.", {201: SessionShape}, body=BranchBody, refuses=(409,))
    async def _branch(self, request: Request) -> Any:
        body = await read(request, BranchBody)
        session = await self._engine.branch(
            request.path_params["id"],
            body.from_message_id,
            metadata=body.metadata,
            model=body.model,
            start_message_id=body.start_message_id,
        )
        return await self._made(session)

    @operation("A branch at a turn.", {201: SessionShape}, body=ForkBody, body_optional=True, refuses=(409,))
    async def _fork(self, request: Request) -> Any:
        body = await read(request, ForkBody, optional=True)
        return await self._made(await self._engine.fork(request.path_params["id"], label=body.label))

    async def _made(self, session: Session) -> Any:
        return answer(session_shape(session, await self._engine.get_status(session.id)), 201)

    @operation("Its turns and branches.", {200: TreeView})
    async def _tree(self, request: Request) -> Any:
        return answer(await self._engine.tree(request.path_params["id"]))

    # Room

    @operation("Summarise the older turns.", {200: Compacted}, body=CompactBody, body_optional=True, refuses=(409,))
    async def _compact(self, request: Request) -> Any:
        body = await read(request, CompactBody, optional=True)
        return answer(await self._engine.compact(request.path_params["id"], body.focus))

    @operation("Stubs for older outputs.", {200: Compacted}, body=Nothing, body_optional=True, refuses=(409,))
    async def _prune(self, request: Request) -> Any:
        await read(request, Nothing, optional=True)
        return answer(await self._engine.prune(request.path_params["id"]))

    @operation("What a compaction summarised.", {200: CompactionReport})
    async def _compaction(self, request: Request) -> Any:
        return answer(await self._engine.compaction(request.path_params["id"], request.path_params["message_id"]))

    @operation("How large the next request would be.", {200: ContextReport}, query=ContextQuery)
    async def _context(self, request: Request) -> Any:
        return answer(
            await self._engine.context(request.path_params["id"], model=query.read(request, ContextQuery).model)
        )

    # What was sent

    @operation("A turn with its steps.", {200: TurnReport})
    async def _turn(self, request: Request) -> Any:
        return answer(await self._engine.turn(request.path_params["id"]))

    @operation("What the model was sent at a step.", {200: RequestReport}, query=RequestQuery)
    async def _request(self, request: Request) -> Any:
        return answer(await self._engine.request(request.path_params["id"], query.read(request, RequestQuery).step))

    @operation("The messages of one turn, on the line or not.", {200: MessageList})
    async def _turn_messages(self, request: Request) -> Any:
        return answer(MessageList(await self._engine.turn_messages(request.path_params["id"])))
