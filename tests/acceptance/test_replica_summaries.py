"""A summary in the making has its session among all replicas, as a run has: by the lease of who makes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from clew.errors import RunAborted, SessionBusy
from clew.session.api import Engine
from clew.session.context.compact import Compacted
from clew.session.history.check import check
from clew.testing.scripted import Gate, say, wait
from clew.transcript.session import Session
from tests.acceptance.compacting import summary
from tests.acceptance.conversations import echo
from tests.acceptance.replicas import Cluster, open_cluster
from tests.acceptance.test_replicas import over, said, until

pytestmark = pytest.mark.rule("RP-1", "RP-3", "RP-4")


@pytest.fixture(params=["memory", "sqlite"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with open_cluster(request.param, tmp_path) as opened:
        yield opened


class Summarising:
    """A session of some length that one replica is asked to summarise, as far as a gate."""

    def __init__(self, one: Engine, two: Engine, session: Session, gate: Gate) -> None:
        self.one, self.two, self.session, self.gate = one, two, session, gate
        self.work: asyncio.Task[Compacted] = asyncio.create_task(one.compact(session.id))

    @classmethod
    async def begin(cls, cluster: Cluster) -> Summarising:
        gate = Gate()
        turns = [say(f"{n} " + "word " * 300) for n in range(5)]
        one = await cluster.join([*turns, [wait(gate), say(summary("what was said"))], say("after")])
        two = await cluster.join(echo())
        session = await one.create_session(title="t")
        for n in range(5):
            await (await one.submit(session.id, f"{n} " + "word " * 300)).wait()
        made = cls(one, two, session, gate)
        await gate.reached.wait()
        return made


async def test_a_summary_in_the_making_is_busy_everywhere_and_what_comes_meanwhile_waits(cluster: Cluster) -> None:
    """The same as beside it: a prompt waits and is fired at its end, a second summary and a change are refused."""
    s = await Summarising.begin(cluster)
    assert {one.state for one in [await engine.get_status(s.session.id) for engine in (s.one, s.two)]} == {"busy"}
    assert (await s.two.statuses([s.session.id]))[s.session.id].state == "busy"
    newest = (await s.two.messages(s.session.id))[-2].id
    for change in (s.two.compact, s.two.prune, lambda id_: s.two.rewind(id_, newest)):
        with pytest.raises(SessionBusy):
            await change(s.session.id)
    with pytest.raises(SessionBusy):
        await s.two.submit(s.session.id, "now", on_busy="reject")
    assert (await s.two.submit(s.session.id, "then")).queued
    s.gate.set()
    assert (await s.work).compacted
    await over(cluster, s.session)
    assert (await said(cluster, s.session))[-2:] == ["user: then", "assistant: after"]
    state = await cluster.store.load_state(s.session.id)
    assert state.runner is None
    assert (await s.two.get_status(s.session.id)).state == "idle"
    assert (await s.two.prune(s.session.id)).compacted is False
    assert await check(cluster.store) == []


@pytest.mark.parametrize("lost", [False, True])
async def test_a_summary_in_the_making_is_stopped_from_elsewhere(cluster: Cluster, lost: bool) -> None:
    """By a signal, or at the next heartbeat. It has lost the session before that: it could not be stored any more."""
    s = await Summarising.begin(cluster)
    before = await said(cluster, s.session)
    cluster.signals.lost = lost
    assert await s.two.abort(s.session.id)
    assert (await s.two.get_status(s.session.id)).state == "idle"
    assert await s.two.abort(s.session.id) is False
    if lost:
        assert not s.one.is_idle(s.session.id)
        await cluster.beat(s.one)
    with pytest.raises(RunAborted):
        await s.work
    assert await said(cluster, s.session) == before
    await (await s.two.submit(s.session.id, "go on")).wait()
    assert (await said(cluster, s.session))[-1] == "assistant: re go on"
    assert await check(cluster.store) == []


async def test_a_prompt_elsewhere_interrupts_a_summary_in_the_making(cluster: Cluster) -> None:
    """As it would beside it; the prompt is stored before."""
    s = await Summarising.begin(cluster)
    await s.two.submit(s.session.id, "this first", on_busy="interrupt")
    with pytest.raises(RunAborted):
        await s.work
    for _ in range(2):
        await cluster.beat(s.one, s.two)
    await over(cluster, s.session)
    assert "user: this first" in (await said(cluster, s.session))[-2:]
    assert await check(cluster.store) == []


async def test_a_summary_of_a_replica_that_is_gone_gives_the_session_up(cluster: Cluster) -> None:
    """Within the lease, what waits is gone on with, and what the frozen one comes up with is not stored."""
    s = await Summarising.begin(cluster)
    assert (await s.two.submit(s.session.id, "then")).queued
    await cluster.freeze(s.one)
    await cluster.beat(s.two)
    await over(cluster, s.session)
    before = await said(cluster, s.session)
    assert before[-2:] == ["user: then", "assistant: re then"]
    state = await cluster.store.load_state(s.session.id)
    assert state.runner is None
    s.gate.set()
    with pytest.raises(SessionBusy):
        await s.work
    await until(lambda: s.one.is_idle(s.session.id))
    assert (await said(cluster, s.session), await cluster.store.load_state(s.session.id)) == (before, state)
    assert [entry.turn.kind for entry in (await cluster.store.load_line(s.session.id)).turns] == ["normal"] * 6
    assert await check(cluster.store) == []
