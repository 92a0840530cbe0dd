"""A cluster that is restarted one replica after another while the real AI SDK client talks to it."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.http_client import SocketClient, bare, texts
from tests.integration.processes import SLOW
from tests.integration.test_ai_client import Page, opened
from tests.rig.chaos_people import expected_answer
from tests.services.balancer import balanced
from tests.services.postgres import Postgres
from tests.services.replica import Replica, own_environment
from tests.services.valkey import Valkey

pytestmark = [pytest.mark.slow, pytest.mark.service, pytest.mark.node]


@contextlib.asynccontextmanager
async def cluster(
    folder: Path, postgres: Postgres, valkey: Valkey, **settings: str
) -> AsyncIterator[tuple[list[Replica], SocketClient]]:
    """Three replicas, and a client that knows nothing but the address in front of them."""
    token, database = secrets.token_urlsafe(16), postgres.create()
    env = own_environment(folder, CLEW_STORE=postgres.url(database), CLEW_LIVE=valkey.url(), CLEW_TOKEN=token)
    with contextlib.ExitStack() as leaving:
        # What they are called is known when the address in front of them is.
        ports: list[int] = []
        async with balanced(ports) as front:
            env |= {"CLEW_HOSTS": f"127.0.0.1:{front}", **settings}
            replicas = [Replica(env) for _ in range(3)]
            for replica in replicas:
                leaving.callback(replica.close)
                await asyncio.to_thread(replica.begin)
                ports.append(replica.port)
            for replica in replicas:
                await asyncio.to_thread(replica.until_up)
            yield replicas, SocketClient(front, token)
    postgres.drop(database)


async def talk(page: Page, restarted: asyncio.Event, number: int) -> tuple[int, list[dict[str, Any]]]:
    """Send until the restart is over, at least once; how often it had to come back, and all it ever held."""
    back, held = 0, []
    while True:
        over = restarted.is_set()
        shown = await page.do("send", text=f"{30 + number} words", body={"model": SLOW})
        while shown["status"] != "ready":
            held += shown["messages"]
            back += 1
            shown = await page.do("resume")
        held += shown["messages"]
        if over:
            return back, held


@pytest.mark.rule("RP-5")
async def test_a_rolling_restart_shows_the_real_client_no_gap(
    tmp_path: Path, postgres: Postgres, valkey: Valkey, record_property: Any
) -> None:
    """Runs end where they are while their replica drains; a stream that breaks is taken up at another."""
    async with cluster(tmp_path, postgres, valkey, CLEW_DRAIN_S="20") as (replicas, client):
        sessions = [await client.session() for _ in range(4)]
        restarted = asyncio.Event()
        async with contextlib.AsyncExitStack() as leaving:
            pages = [await leaving.enter_async_context(opened(client, one)) for one in sessions]
            talking = [asyncio.create_task(talk(page, restarted, n)) for n, page in enumerate(pages)]
            for replica in replicas:
                assert await asyncio.to_thread(replica.end) == 0, replica.log()
                await asyncio.to_thread(replica.start)
            restarted.set()
            told = await asyncio.gather(*talking)
        for number, (session_id, (_, held)) in enumerate(zip(sessions, told, strict=True)):
            stored = await client.messages(session_id)
            answers = {m["id"]: m for m in stored if m["role"] == "assistant"}
            whole = await expected_answer(f"{30 + number} words")
            said = {"".join(p["text"] for p in m["parts"] if "text" in p) for m in answers.values()}
            assert said == {whole}
            shown = {m["id"]: m for m in held if m["role"] == "assistant"}
            assert {id_: bare(m) for id_, m in shown.items()} == {id_: bare(m) for id_, m in answers.items()}
            for message in held:
                if message["role"] == "assistant":
                    assert texts(answers[message["id"]]).startswith(texts(message))
    record_property(
        "figure", f"rolling restart: 3 replicas, {sum(back for back, _ in told)} streams taken up elsewhere"
    )
