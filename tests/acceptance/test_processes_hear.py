"""What one process does the others hear: through Valkey and through PostgreSQL, by HTTP and in the library."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from clew.fronts.http.app import make_app
from clew.fronts.http.sse import Streams
from clew.live.base import Live, Signal
from clew.live.postgres import PostgresLive
from clew.live.redis import RedisLive
from clew.session.api import Engine
from clew.testing.scenario import reduced
from clew.testing.scripted import ScriptedModel, say
from tests.acceptance.elsewhere import Pace, cluster, sentences
from tests.integration.http_client import HOST, TOKEN, AsgiClient

if TYPE_CHECKING:
    from tests.services.valkey import Valkey

pytestmark = pytest.mark.service


@pytest.fixture(params=["valkey", "postgres"])
def make_live(request: pytest.FixtureRequest, postgres_store_url: str) -> Callable[[], Live]:
    if request.param == "postgres":
        return lambda: PostgresLive(postgres_store_url)
    valkey: Valkey = request.getfixturevalue("valkey")
    return lambda: RedisLive(valkey.url(), name="one")


@contextlib.asynccontextmanager
async def connected(url: str, make: Callable[[], Live], model: ScriptedModel) -> AsyncIterator[tuple[Engine, Engine]]:
    """Two engines that hear one another by now."""
    async with cluster(url, make, model) as (here, there):
        words = [aiter(engine.host.live.signals()) for engine in (here, there)]
        for engine in (here, there):
            heard = asyncio.gather(*(anext(word) for word in words))
            while not heard.done():
                engine.host.live.signal(Signal("ses_hello", "queue"))
                await asyncio.wait([heard], timeout=0.05)
        yield here, there


@pytest.mark.rule("RP-3")
async def test_status_events_and_signals_reach_the_other_process(
    postgres_store_url: str, make_live: Callable[[], Live]
) -> None:
    """The turn as it began and ended here, to whoever subscribes there; a signal there, to whoever runs it here."""
    async with connected(postgres_store_url, make_live, ScriptedModel([say("done")])) as (here, there):
        session = await here.create_session()
        events, signals = there.subscribe(), here.host.live.signals()
        submission = await here.submit(session.id, "go")
        await submission.wait()
        told: list[str] = []
        while "turn_finished" not in told:
            event = await asyncio.wait_for(anext(events), 60)
            if event.data["session_id"] == session.id:
                told.append(event.type)
        assert [kind for kind in told if kind.startswith("turn")] == ["turn_started", "turn_finished"]
        assert "status" in told
        there.host.live.signal(Signal(session.id, "stop"))
        while await asyncio.wait_for(anext(signals), 60) != Signal(session.id, "stop"):
            pass


@pytest.mark.rule("RP-2")
@pytest.mark.rule("SR-2")
async def test_a_client_joins_a_run_of_another_process_over_http(
    postgres_store_url: str, make_live: Callable[[], Live]
) -> None:
    """The stream to come back to, asked of a server that does not run it; after its end there is none."""
    pace = Pace(sentences(Random(5), 60))
    async with connected(postgres_store_url, make_live, ScriptedModel([pace.pieces])) as (here, there):
        session = await here.create_session()
        submission = await here.submit(session.id, "go")
        await pace.go(20)
        streams = Streams()
        app = make_app(there, token=TOKEN, hosts={HOST}, streams=streams)
        client = AsgiClient(app, there, streams)
        viewer = asyncio.create_task(frames(client, session.id))
        while pace.left:
            await pace.go(5)
            await asyncio.sleep(0.01)
        await submission.wait()
        seen = await asyncio.wait_for(viewer, 60)
        assert reduced(seen)["parts"] == (await here.messages(session.id))[-1].parts
        assert seen[-1] == {"type": "finish", "finishReason": "stop"}
        assert (await client.get(f"/api/chat/{session.id}/stream")).status == 204


async def frames(client: Any, session_id: str) -> list[dict[str, Any]]:
    async with client.open("GET", f"/api/chat/{session_id}/stream") as reply:
        return [frame async for frame in reply.frames() if frame != "[DONE]"]
