"""A real ``clew serve`` that is stopped in mid-sentence, as by a machine that froze, and goes on when it is late."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http_client import Reply, SocketClient, bare, reduced, texts
from tests.integration.processes import SLOW
from tests.services.postgres import Postgres
from tests.services.replica import Replica, own_environment

pytestmark = [pytest.mark.slow, pytest.mark.service]

STORED = """
    select 'part', message_id || "index", data_json::text from chat_parts
    union all select 'chunk', message_id, data::text from stream_journal
    union all select 'turn', id, status || data_json::text from chat_turns
    union all select 'state', session_id, epoch || coalesce(runner, '') from session_state
    order by 1, 2, 3
"""


async def seen(reply: Reply, shown: list[Any], few: asyncio.Event) -> None:
    """Note what a viewer is shown to the end of his stream."""
    async for frame in reply.frames():
        shown.append(frame)
        if frame != "[DONE]" and frame["type"] == "text-delta":
            few.set()


@pytest.mark.rule("RP-2", "RP-4")
async def test_a_server_that_was_stopped_and_goes_on_writes_nothing_and_viewers_elsewhere_see_the_end_it_was_given(
    tmp_path: Path, postgres: Postgres
) -> None:
    """Its session is settled by the other within its lease. Awake, it finds out, joins anew and takes prompts."""
    database = postgres.create()
    env = own_environment(
        tmp_path, CLEW_STORE=postgres.url(database), CLEW_TOKEN="t0ken-of-this-test", CLEW_LEASE_S="3"
    )
    with contextlib.ExitStack() as leaving:
        replicas = [Replica(env) for _ in range(2)]
        for replica in replicas:
            leaving.callback(replica.close)
            replica.begin()
        for replica in replicas:
            await asyncio.to_thread(replica.until_up)
        stopped, other = (SocketClient(replica.port, "t0ken-of-this-test") for replica in replicas)
        session = await other.session(model=SLOW)
        assert (await stopped.prompt(session, "2000 words")).status == 202
        shown: list[Any] = []
        few = asyncio.Event()
        async with asyncio.timeout(90), other.open("GET", f"/api/chat/{session}/stream") as reply:
            viewing = asyncio.ensure_future(seen(reply, shown, few))
            await few.wait()
            replicas[0].pause()
            leaving.callback(replicas[0].resume)
            await viewing
            assert (await other.idle(session))["state"] in ("idle", "error")
            settled = postgres.ask_in(database, STORED)
            before = {one["id"] for one in (await other.get("/api/replicas")).json()["replicas"]}
            replicas[0].resume()
            while True:
                if not {one["id"] for one in (await other.get("/api/replicas")).json()["replicas"]} <= before:
                    break
                await asyncio.sleep(0.05)
        assert postgres.ask_in(database, STORED) == settled
        [asked, answer] = await other.messages(session)
        assert (texts(asked), shown[-1]) == ("2000 words", "[DONE]")
        assert reduced(shown[:-1]) == bare(answer)
        assert texts(answer)
        assert (await stopped.prompt(session, "3 words")).status == 202
        await other.idle(session)
        assert texts((await other.messages(session))[-1])
    postgres.drop(database)
