"""The product's server: `uvicorn --factory examples.product.app:app`, once the page in `front` is built.

A person logs in with a cookie of the product's own. What they may see is decided in one place, ``own_engine``: an
engine in which nothing but their sessions is there.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import Body, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.requests import HTTPConnection

import clew
import clew.server
from examples.product.desk import Order, Shop, open_desk
from examples.product.people import People

COOKIE = "desk"
FRONT = Path(__file__).parent / "front" / "dist"


class Login(BaseModel):
    name: str
    password: str


def who_asks(request: Request) -> str | None:
    people: People = request.app.state.people
    return people.find(request.cookies.get(COOKIE))


def own_engine(request: Request) -> clew.Engine:
    name = who_asks(request)
    if name is None:
        raise HTTPException(401, "log in first")
    engine: clew.Engine = request.app.state.engine
    return engine.scoped(name)


Own = Annotated[clew.Engine, Depends(own_engine)]


def make_app(
    url: str = "sqlite:///desk.db",
    *,
    people: People,
    shop: Shop,
    providers: clew.Providers | None = None,
    front: Path = FRONT,
) -> FastAPI:
    built = front.is_dir()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
        async with open_desk(url, shop, providers) as engine:
            app.state.engine = engine
            # clew's own page for the same people, who are known there by the same cookie.
            app.mount("/inside", clew.server.make_app(engine, authenticate=known))
            if built:
                app.mount("/", StaticFiles(directory=front, html=True))
            yield

    def known(connection: HTTPConnection) -> str | None:
        return people.find(connection.cookies.get(COOKIE))

    app = FastAPI(lifespan=lifespan, exception_handlers=dict(clew.server.exception_handlers))
    app.state.people = people
    app.post("/login")(log_in)
    app.post("/logout")(log_out)
    app.get("/me")(me)
    app.get("/spend")(spend)
    app.get("/chats")(chats)
    app.get("/chats/{chat_id}")(messages)
    app.post("/api/chat")(chat)
    app.get("/api/chat/{chat_id}/stream")(resume)
    app.get("/api/blobs/{digest}")(file)
    return app


async def log_in(request: Request, given: Login, response: Response) -> dict[str, str]:
    people: People = request.app.state.people
    cookie = people.log_in(given.name, given.password)
    if cookie is None:
        raise HTTPException(401, "the name or the password is wrong")
    response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict")
    return {"name": given.name}


async def log_out(request: Request, response: Response) -> None:
    people: People = request.app.state.people
    people.log_out(request.cookies.get(COOKIE, ""))
    response.delete_cookie(COOKIE)


async def me(request: Request) -> dict[str, str | None]:
    return {"name": who_asks(request)}


async def spend(engine: Own) -> dict[str, float]:
    """What the person's own chats have cost, subagents included."""
    total = (await engine.usage("owner")).total
    return {"calls": total.calls, "cost_usd": total.cost_usd}


async def chats(engine: Own) -> list[dict[str, str | None]]:
    return [{"id": one.alias or one.id, "title": one.title} for one in (await engine.list_sessions()).sessions]


async def messages(engine: Own, chat_id: str) -> list[dict[str, Any]]:
    """A chat as `useChat` takes it; one of somebody else's is not there."""
    shown = await engine.messages(chat_id)
    return [{"id": one.id, "role": one.role, "parts": list(one.parts)} for one in shown]


async def chat(engine: Own, body: Annotated[dict[str, Any], Body()]) -> Response:
    # The page draws the id of a new chat; its first message makes the session.
    # Everyone who is let in here may approve what their own chat asks for.
    frames = await clew.server.chat(engine, body, create=True, approvals=True)
    return StreamingResponse(frames, headers=clew.server.headers)


async def resume(engine: Own, chat_id: str) -> Response:
    frames = await clew.server.resume(engine, chat_id)
    return Response(status_code=204) if frames is None else StreamingResponse(frames, headers=clew.server.headers)


async def file(engine: Own, digest: str) -> Response:
    """An attachment, or what a tool has drawn. Never as a page of this origin."""
    blob = await engine.blob(digest)
    safe = {"content-security-policy": "sandbox; default-src 'none'", "x-content-type-options": "nosniff"}
    return Response(blob.data, media_type=blob.media_type, headers=safe)


def app() -> FastAPI:
    """For a look: `uvicorn --factory examples.product.app:app`, then log in as ann or ben with the password `desk`."""
    shop = Shop(
        Order(7, "ann", "Blue lamp", 4900), Order(8, "ann", "Red lamp", 5900), Order(9, "ben", "Green chair", 12900)
    )
    return make_app(people=People({"ann": "desk", "ben": "desk"}), shop=shop)
