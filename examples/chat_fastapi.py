"""The same chat in an app of FastAPI: `uvicorn examples.chat_fastapi:app`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Body, FastAPI, Request, Response
from fastapi.responses import StreamingResponse

import clew
import clew.server
from examples.shop import open_shop


def make_app(url: str = "sqlite:///shop.db", providers: clew.Providers | None = None) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with open_shop(url, providers) as engine:
            app.state.engine = engine
            yield

    app = FastAPI(lifespan=lifespan, exception_handlers=dict(clew.server.exception_handlers))

    @app.post("/sessions", status_code=201)
    async def create(request: Request) -> dict[str, str]:
        session = await request.app.state.engine.create_session(metadata={"customer": "Ann"})
        return {"id": session.id}

    @app.post("/api/chat")
    async def chat(request: Request, body: Annotated[dict[str, Any], Body()]) -> Response:
        # Everyone who is let in here may approve what their own chat asks for.
        frames = await clew.server.chat(request.app.state.engine, body, approvals=True)
        return StreamingResponse(frames, headers=clew.server.headers)

    @app.get("/api/chat/{session_id}/stream")
    async def resume(request: Request, session_id: str) -> Response:
        frames = await clew.server.resume(request.app.state.engine, session_id)
        return Response(status_code=204) if frames is None else StreamingResponse(frames, headers=clew.server.headers)

    return app


app = make_app()
