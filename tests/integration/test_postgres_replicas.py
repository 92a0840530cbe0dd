"""Replicas on a real PostgreSQL: each with its own connections, as several machines have them."""

from __future__ import annotations

import asyncio

import pytest

import clew
from clew.config import ReplicaConfig
from clew.session.acquire.acquire import BY_USER, GONE
from clew.store.unit import STORE_WIDE, BeatReplica, Unit
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, say, wait

pytestmark = [pytest.mark.service, pytest.mark.rule("RP-1", "RP-3", "RP-4", "SR-8")]
CONFIG = clew.Config(replica=ReplicaConfig(lease_s=60))


async def test_a_session_has_one_run_among_replicas_and_goes_on_when_its_replica_is_gone(
    postgres_store_url: str,
) -> None:
    """A prompt elsewhere waits, an abort elsewhere arrives, what a frozen one ran is settled and cannot be written."""
    gate, late = Gate(), Gate()
    script = [[say("a "), wait(gate)], [say("b "), wait(late), say("too late")]]
    one_model, two_model = ScriptedModel(script), ScriptedModel([say("well")])
    async with (
        clew.open(postgres_store_url, config=CONFIG, providers=FakeProviders(one_model), live="local") as one,
        clew.open(postgres_store_url, config=CONFIG, providers=FakeProviders(two_model), live="local") as two,
    ):
        assert [replica.here for replica in await two.replicas()] == [False, True]
        session = await one.create_session(title="t")
        running = await one.submit(session.id, "go")
        await gate.reached.wait()
        assert (await two.get_status(session.id)).state == "busy"
        assert (await two.submit(session.id, "next")).queued
        assert await two.abort(session.id, queue="go_on")
        await one._runtime.heartbeat.look()
        assert (await running.wait()).stopped == BY_USER
        await asyncio.wait_for(late.reached.wait(), 60)
        held = str(one.host.lease.replica_id)
        await two.store.commit(Unit(STORE_WIDE, (BeatReplica(held, 0),)))
        await two._runtime.heartbeat.look()
        turn = (await two.store.load_line(session.id)).turns[-1].turn
        assert (turn.status, turn.error["message"]) == ("failed", GONE)
        before = await two.store.find_full_session(session.id)
        late.set()
        run = one._runtime.sessions.find_run(session.id)
        if run is not None:
            await run.wait()
        assert await two.store.find_full_session(session.id) == before
        await (await two.submit(session.id, "go on")).wait()
        line = await two.store.load_line(session.id)
        assert [" ".join(row.texts) for turn in line.turns for row in turn.messages][-2:] == ["go on", "well"]
