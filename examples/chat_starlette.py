"""A chat for `useChat` in an app of Starlette: `uvicorn examples.chat_starlette:app`.

The client makes a session first (`POST /sessions`) and uses its id: `useChat({ id, resume: true, transport:
new DefaultChatTransport({ api: "/api/chat" }) })`. Approvals come in the stream and go back with the next post.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import clew
import clew.server
from examples.shop import open_shop


def make_app(url: str = "sqlite:///shop.db", providers: clew.Providers | None = None) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        async with open_shop(url, providers) as engine:
            app.state.engine = engine
            yield

    routes = [
        Route("/sessions", create, methods=["POST"]),
        Route("/api/chat", chat, methods=["POST"]),
        Route("/api/chat/{id}/stream", resume),
    ]
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=dict(clew.server.exception_handlers))


async def create(request: Request) -> Response:
    engine: clew.Engine = request.app.state.engine
    session = await engine.create_session(metadata={"customer": "Ann"})
    return JSONResponse({"id": session.id}, status_code=201)


async def chat(request: Request) -> Response:
    # Refusals raise here, before a header is sent: a busy session, one that is not there, a message that is none.
    # Everyone who is let in here may approve what their own chat asks for.
    frames = await clew.server.chat(request.app.state.engine, await request.body(), approvals=True)
    return StreamingResponse(frames, headers=clew.server.headers)


async def resume(request: Request) -> Response:
    frames = await clew.server.resume(request.app.state.engine, request.path_params["id"])
    return Response(status_code=204) if frames is None else StreamingResponse(frames, headers=clew.server.headers)


app = make_app()
