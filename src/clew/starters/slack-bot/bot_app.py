"""The bot's server: ``uvicorn --factory bot_app:make_app``. Slack sends its events to /slack/events."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.request
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

import clew
import clew.server
from bot import Outbox, Post, is_from_slack, open_bot, receive


async def post_to_slack(channel: str, thread: str, text: str) -> None:
    """Post a text to a thread with the bot token in SLACK_BOT_TOKEN."""
    body = json.dumps({"channel": channel, "thread_ts": thread, "text": text}).encode()
    headers = {
        "Authorization": f"Bearer {os.environ['SLACK_BOT_TOKEN']}",
        "Content-Type": "application/json; charset=utf-8",
    }
    request = urllib.request.Request("https://slack.com/api/chat.postMessage", body, headers)
    with await asyncio.to_thread(urllib.request.urlopen, request, timeout=30) as response:
        answer = json.load(response)
    if not answer["ok"]:
        raise RuntimeError(f"Slack refused the post: {answer['error']}")


async def post_answers(engine: clew.Engine, post: Post, mark: Path) -> None:
    """Post answers until cancelled: those left from before a restart, then each one when its turn ends."""
    ended = asyncio.Event()

    async def turn_finished(_: clew.TurnOutcome) -> None:
        ended.set()

    engine.hook("turn_finished", turn_finished)
    outbox = Outbox(engine, post, mark)
    while True:
        ended.clear()
        try:
            await outbox.flush()
            await ended.wait()
        except (OSError, RuntimeError) as error:
            print(f"not posted, trying again in 10 seconds: {error}")
            await asyncio.sleep(10)


def make_app(folder: Path = Path(), post: Post = post_to_slack, providers: clew.Providers | None = None) -> Starlette:
    """Return the app. Its sessions are in ``bot.db`` of the folder; clew's own page is at / with CLEW_TOKEN."""
    secret = os.environ["SLACK_SIGNING_SECRET"]

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncGenerator[None, None]:
        async with open_bot(f"sqlite:///{folder}/bot.db", providers=providers) as engine:
            app.state.engine = engine
            if token := os.environ.get("CLEW_TOKEN"):
                app.router.routes.append(Mount("/", clew.server.make_app(engine, token=token)))
            posting = asyncio.create_task(post_answers(engine, post, folder / "posted"))
            yield
            await engine.drain(20)  # lets turns finish before the process ends
            posting.cancel()

    async def take(request: Request) -> Response:
        body = await request.body()
        if not is_from_slack(secret, body, request.headers):
            return Response(status_code=401)
        return JSONResponse(await receive(request.app.state.engine, body))

    return Starlette(routes=[Route("/slack/events", take, methods=["POST"])], lifespan=lifespan)
