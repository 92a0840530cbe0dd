"""PostgreSQL with several who write to it at once, and answers that are lost on the way."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from random import Random

import psycopg
import pytest

import clew
from clew.clock import SystemClock
from clew.config import ReplicaConfig
from clew.store.base import Store
from clew.store.unit import STORE_WIDE, BeatReplica, Committed, PatchSession, PutProjectRules, RulesAre, Unit
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, say, wait
from tests.integration.test_postgres import answer_of, opened, session_on, spent, through
from tests.rounds import rounds
from tests.services.postgres import Postgres
from tests.services.proxy import Proxy

pytestmark = [pytest.mark.service, pytest.mark.rule("ST-12")]


def name_of(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


@pytest.mark.slow
@pytest.mark.rule("ST-3")
async def test_whatever_commit_loses_its_answer_nothing_is_done_twice_and_nothing_is_lost(
    postgres_store_url: str, postgres_proxy: Proxy
) -> None:
    """Of units and of what looks for them afterwards, while others wait; now and then the way is cut as well."""
    chance = Random(6)
    async with opened(through(postgres_store_url, postgres_proxy), writers=2) as store:
        scribes = [await session_on(store) for _ in range(3)]
        messages = [await answer_of(scribe) for scribe in scribes]
        done = [0] * len(scribes)
        lost = 0
        while lost < rounds(40):
            postgres_proxy.drop_reply(b"COMMIT\x00")
            places = [chance.randrange(len(scribes)) for _ in range(chance.randint(1, 5))]
            units = [store.submit(spent(scribes[place], messages[place])) for place in places]
            if chance.random() < 0.2:
                postgres_proxy.cut()
                postgres_proxy.restore()
            if chance.random() < 0.3:
                # What looks whether the commit was done loses its answer, too.
                await asyncio.to_thread(postgres_proxy.dropped.wait, 10)
                postgres_proxy.drop_reply(b"COMMIT\x00")
                lost += 1
            assert await asyncio.gather(*units) == [Committed()] * len(units)
            lost += postgres_proxy.dropped.is_set()
            for place in places:
                done[place] += 1
        sessions = [await store.find_session(scribe.session_id) for scribe in scribes]
        assert [(one.prompt_tokens, one.cost_usd) for one in sessions if one] == [(5 * n, 0.5 * n) for n in done]


@pytest.mark.rule("RP-1")
async def test_who_writes_to_the_same_sessions_in_another_order_is_in_nobodys_way(
    postgres: Postgres, postgres_store_url: str
) -> None:
    """Each group takes its sessions, and names before them, in one order for everybody: no deadlock to give way to."""
    async with opened(postgres_store_url, writers=1) as one, opened(postgres_store_url, writers=1) as other:
        scribes = [await session_on(one) for _ in range(6)]

        def unit(store: Store, place: int, n: int) -> asyncio.Future[object]:
            rules = PutProjectRules(f"/{place % 2}", ({"n": n},), n) if place % 3 == 0 else None
            guards = (RulesAre(f"/{5 - place}", ()),) if rules is not None else ()
            writes = (PatchSession({f"n{n}": 1}), *((rules,) if rules else ()))
            return asyncio.ensure_future(store.commit(Unit(scribes[place].session_id, writes, guards)))

        for n in range(20):
            here = [unit(one, place, n) for place in range(6)]
            there = [unit(other, place, n + 100) for place in reversed(range(6))]
            assert set(map(str, await asyncio.gather(*here, *there))) == {str(Committed())}
        sessions = [await other.find_session(scribe.session_id) for scribe in scribes]
        assert [len(one.metadata) for one in sessions if one] == [40] * 6
    assert postgres.ask("select deadlocks from pg_stat_database where datname = %s", name_of(postgres_store_url)) == [
        (0,)
    ]


class Wrong(SystemClock):
    """A machine whose clock is so far off."""

    def __init__(self, by_ms: int) -> None:
        self._by_ms = by_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._by_ms


@pytest.mark.rule("RP-1", "RP-4")
@pytest.mark.parametrize("ahead", [True, False])
async def test_leases_go_by_the_clock_of_the_database_whatever_those_of_the_machines_say(
    postgres_store_url: str, ahead: bool
) -> None:
    """Ten minutes apart, with a lease of twenty seconds: nobody takes what the other runs, until its lease is over."""
    minutes = 5 * 60_000 * (1 if ahead else -1)
    config, gate = clew.Config(replica=ReplicaConfig(lease_s=20)), Gate()
    model = ScriptedModel([[say("half "), wait(gate)]])
    async with (
        clew.open(
            postgres_store_url, config=config, providers=FakeProviders(model), live="local", clock=Wrong(minutes)
        ) as one,
        clew.open(
            postgres_store_url,
            config=config,
            providers=FakeProviders(ScriptedModel([say("well")])),
            live="local",
            clock=Wrong(-minutes),
        ) as two,
    ):
        session = await one.create_session(title="t")
        await one.submit(session.id, "go")
        await gate.reached.wait()
        with psycopg.connect(postgres_store_url) as asking:
            told = asking.execute("select beat_at, extract(epoch from clock_timestamp()) * 1000 from replicas")
            assert all(abs(float(now) - beat_at) < 20_000 for beat_at, now in told.fetchall())
        for engine in (one, two):
            await engine._runtime.heartbeat.beat()
            await engine._runtime.heartbeat.look()
        assert [replica.alive for replica in await two.store.list_replicas()] == [True, True]
        assert (await two.get_status(session.id)).state == "busy"
        assert not one.is_idle(session.id)
        await two.store.commit(Unit(STORE_WIDE, (BeatReplica(str(one.host.lease.replica_id), 0),)))
        await two._runtime.heartbeat.look()
        assert (await two.get_status(session.id)).state == "idle"
        assert (await (await two.submit(session.id, "go on")).wait()).status == "completed"
        gate.set()


_STATEMENT = re.compile(r"LOG:  (?:execute (\S+)|statement): (.*?)(?=^\d{4}-|\Z)", re.MULTILINE | re.DOTALL)
_OUTLIVES = re.compile(
    r"(?:\A|;)\s*(?:SET (?!LOCAL|TRANSACTION)|PREPARE|DEALLOCATE|DISCARD|DECLARE)\b|pg_(?:try_)?advisory_lock"
    r"|set_config\([^)]*, *false\)|CREATE TEMP\w* TABLE(?!.*ON COMMIT DROP)",
    re.IGNORECASE | re.DOTALL,
)


async def test_no_statement_leaves_anything_in_a_session_of_the_server(
    postgres: Postgres, postgres_store_url: str, tmp_path: Path
) -> None:
    """So a pooler that hands out connections by transaction may stand in between: all but the one that listens."""
    postgres.ask(f"alter database {name_of(postgres_store_url)} set log_statement = 'all'")
    log = postgres.folder / "log"
    before = log.stat().st_size
    providers = FakeProviders(ScriptedModel([say("answered"), say("again")]))
    async with clew.open(postgres_store_url, config=clew.Config(), providers=providers) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        await (await engine.submit(session.id, "asked")).wait()
        await engine.add_rule("project", "bash", "ls", "allow", workspace=tmp_path)
        branch = await engine.branch(session.id, (await engine.messages(session.id))[-1].id)
        await engine.rewind(session.id, (await engine.messages(session.id))[0].id)
        assert len((await engine.search("answered")).hits) >= 1
        await engine.list_sessions()
        await engine._runtime.heartbeat.beat()
        await engine.delete_session(branch.id)
        assert await engine.store.verify() == ()
    logged = _STATEMENT.findall(log.read_bytes()[before:].decode())
    assert len(logged) > 100
    assert {name for name, _ in logged} <= {"", "<unnamed>"}, "a prepared statement stays in its session"
    kept = [" ".join(said.split()) for _, said in logged if _OUTLIVES.search(said)]
    assert kept == []
    assert {" ".join(said.split()) for _, said in logged if said.upper().startswith(("LISTEN", "UNLISTEN"))} != set()
    for hostile in ("SET search_path = x", "set_config('a', '1', false)", "SELECT pg_advisory_lock(1)", "PREPARE p AS"):
        assert _OUTLIVES.search(hostile), "the judge must mind this one"
    for harmless in ("SET LOCAL lock_timeout = '2s'", "UPDATE a SET b = 1", "SELECT pg_advisory_xact_lock(1)"):
        assert not _OUTLIVES.search(harmless)
