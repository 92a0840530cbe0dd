"""What was spent, as people ask for it: over HTTP, on the command line, of a session, and after a session is gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec
import pytest

import clew
from clew.errors import InvalidInput
from clew.ids import Mint
from clew.providers.base import ModelInfo
from clew.session.api import Engine
from clew.session.history.convert import convert
from clew.store.sql import conversations, rows
from clew.store.sql.statements import Statements
from clew.store.unit import PatchSession, PutCall, PutProjectRules, Unit
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.testing.scripted import FakeProviders, ScriptedModel, call, fail, say, then
from clew.transcript.model_call import ModelCall
from clew.transcript.session import Model
from clew.transcript.spend import GROUPINGS, UsageGroup, UsageQuery, parse_bound
from clew.transcript.usage import Usage
from tests.acceptance.compacting import bulk, summary
from tests.integration.command_line import Run, run
from tests.integration.http_client import served

__all__ = ["run"]

JAN_31, FEB_1 = 1_769_817_600_000, 1_769_904_000_000
"""Their first moments, in 2026."""


async def spend(engine: Engine, session_id: str, asked_at: int, **fields: Any) -> None:
    """Have a model call of this session in the store."""
    fields = {"purpose": "answer", "ended": "completed", "ended_at": asked_at + 5, **fields}
    fields = {"model": Model("demo", "echo"), "usage": Usage(1_000, 200, 30, 4, 1), "cost_usd": 0.1, **fields}
    call = ModelCall(id=engine.mint.call(), asked_at=asked_at, session_id=session_id, **fields)
    await engine.store.commit(Unit(session_id, (PutCall(call),)))


async def fill(engine: Engine) -> tuple[str, str]:
    """Two sessions, with three calls and with one."""
    first, second = [(await engine.create_session(title=title)).id for title in ("one", "two")]
    await spend(engine, first, JAN_31, workspace="/w")
    await spend(engine, first, FEB_1 - 1, purpose="title", model=Model("demo", "small"), workspace="/w")
    await spend(engine, first, FEB_1, ended="cut", estimated=True)
    await spend(engine, second, FEB_1 + 9, purpose="summary")
    return first, second


def sums(n: int, estimated: int = 0) -> dict[str, Any]:
    counts = {"input": 1_000 * n, "output": 200 * n, "reasoning": 30 * n, "cache_read": 4 * n, "cache_write": n}
    return {"calls": n, **counts, "cost_usd": round(0.1 * n, 9), "estimated": estimated, "unpriced": 0}


@pytest.mark.rule("US-5")
async def test_every_grouping_over_http_comes_to_the_same() -> None:
    """Over all the time there is, and over any part of it; what cannot be asked is refused in a sentence."""
    async with served() as client:
        first, second = await fill(client.engine)
        groups: dict[str, list[tuple[str | None, dict[str, Any]]]] = {
            "day": [("2026-01-31", sums(2)), ("2026-02-01", sums(2, 1))],
            "model": [("demo/echo", sums(3, 1)), ("demo/small", sums(1))],
            "session": [(first, sums(3, 1)), (second, sums(1))],
            "workspace": [("/w", sums(2)), (None, sums(2, 1))],
            "owner": [(None, sums(4, 1))],
        }
        for by, found in groups.items():
            shown = [{"key": key, **one} for key, one in found]
            assert (await client.get(f"/api/usage?by={by}")).json() == {"groups": shown, "total": sums(4, 1)}
        for by in GROUPINGS:
            for span, total in (
                ("from=2026-02-01", sums(2, 1)),
                ("to=2026-01-31", sums(2)),
                (f"from={JAN_31 + 1}&to={FEB_1}", sums(1)),
                ("from=2026-01-31T23:59:59.999Z&to=2026-02-01T00:00:00.001Z", sums(2, 1)),
                ("from=2027-01-01", {**sums(0), "cost_usd": 0.0}),
            ):
                assert (await client.get(f"/api/usage?by={by}&{span}")).json()["total"] == total
        assert (await client.get("/api/usage")).json() == (await client.get("/api/usage?by=day")).json()
        for query in ("by=hour", "from=yesterday", "to=2026-13-01", f"from={10**14}999"):
            answer = await client.get(f"/api/usage?{query}")
            assert (answer.status, answer.code) == (422, "invalid_input"), query


@pytest.mark.rule("US-5")
async def test_a_session_shows_what_it_and_its_subagents_have_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone and in a list, which asks for all of them at once; its branch has spent nothing yet."""
    async with served() as client:
        engine = client.engine
        first, second = await fill(engine)
        child = await Scribe.create(engine.store, parent_id=first, metadata={"kind": "subagent"})
        await spend(engine, child.session_id, FEB_1)
        _, _, answer_id = await Scribe(engine.store, second, engine.mint, engine.clock).turn("hello", text("hi"))
        branch = await engine.branch(second, answer_id)
        spent = {
            first: {"calls": 4, "tokens": 4 * 1_235, "cost_usd": 0.4, "subagents": 1},
            second: {"calls": 1, "tokens": 1_235, "cost_usd": 0.1, "subagents": 0},
            branch.id: {"calls": 0, "tokens": 0, "cost_usd": 0.0, "subagents": 0},
        }
        asked: list[list[str]] = []
        load = conversations._spent

        def counted(sql: Statements, session_ids: Collection[str]) -> Any:
            asked.append(sorted(session_ids))
            return load(sql, session_ids)

        monkeypatch.setattr(conversations, "_spent", counted)
        listed = (await client.get("/api/sessions")).json()["sessions"]
        assert {one["id"]: one["spend"] for one in listed} == spent
        assert asked == [sorted(spent)]
        for session_id, expected in spent.items():
            assert (await client.get(f"/api/sessions/{session_id}")).json()["spend"] == expected


@pytest.mark.rule("US-5", "US-2")
@pytest.mark.parametrize("store", ["memory", "sqlite", "jsonl"])
async def test_a_session_with_subagents_a_title_and_summaries_adds_up_by_hand(store: str, tmp_path: Path) -> None:
    """Every call that was made is in every grouping once; the rollups have the answers of their own session alone."""
    used = {
        name: Usage(*(5**place * count for count in (1, 2, 3, 1, 2)))
        for place, name in enumerate(("asks a subagent", "the subagent", "its own", "goes on", "once more"))
    }
    title, summed, branched = Usage(7, 1), Usage(900, 90, 9), Usage(400, 4)
    model = ScriptedModel(
        [
            then(call("task", {"prompt": "look"}), usage=used["asks a subagent"]),
            then(call("task", {"prompt": "look closer"}), usage=used["the subagent"]),
            then(say("seen"), usage=used["its own"]),
            then(say("found"), usage=used["goes on"]),
            then(say("done"), usage=used["once more"]),
            *(say("ok") for _ in range(4)),
            fail(400),
            then(say("elsewhere"), usage=branched),
        ]
    )
    answers = {"msg_title": then(say("A title"), usage=title), "msg_summary": then(say(summary("it")), usage=summed)}
    cheap = ScriptedModel(otherwise=lambda asked: answers[asked.messages[0].id])
    by = Model("cheap", "model")
    info = ModelInfo(model=Model("test", "model"), window=20_000, max_output=1_000, titler=by, summariser=by)
    providers = FakeProviders({"test": model, "cheap": cheap}, infos=[info], cost=lambda _, one: one.total / 10**6)
    folder = tmp_path / "workspace"
    folder.mkdir()
    url = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/store.db", "jsonl": f"jsonl:{tmp_path}/store"}[store]
    config = msgspec.convert({"compaction": {"preset": "guide"}}, clew.Config)
    async with served(store=url, providers=providers, config=config) as client:
        rules = ({"permission": "*", "pattern": "*", "action": "allow"},)
        id_ = await client.session(workspace_root=str(folder))
        allowed = (PatchSession(permissions=rules), PutProjectRules(str(folder), rules, 1))
        await client.engine.store.commit(Unit(id_, allowed))
        await (await client.engine.submit(id_, "go")).wait()
        # A title is asked for beside everything else, and after the first turns alone.
        while (await client.get(f"/api/sessions/{id_}")).json()["title"] != "A title":
            pass
        for word in ("one", "two", "three", "four"):
            await (await client.engine.submit(id_, bulk(word))).wait()
        assert (await client.post(f"/api/sessions/{id_}/compact", {})).json()["compacted"]
        await (await client.engine.submit(id_, "refused")).wait()
        branch = (await client.engine.branch(id_, (await client.messages(id_))[-1]["id"])).id
        await (await client.engine.submit(branch, "aside")).wait()

        bulked, own = Usage(10, 5), [used["asks a subagent"], used["once more"]]
        below = [used["the subagent"], used["its own"], used["goes on"]]
        of_session = [*own, *[bulked] * 4, *below, title, summed, Usage()]
        everything = [*of_session, branched]
        sessions = {one["id"]: one for one in (await client.get("/api/sessions?kind=any")).json()["sessions"]}
        assert sessions[id_]["spend"] == spent(of_session, subagents=2)
        assert sessions[branch]["spend"] == spent([branched])
        assert sessions[id_]["total_tokens"] == sum(one.total for one in (*own, *[bulked] * 4))
        [first] = [one for one in sessions.values() if one["parent_id"] == id_ and one["kind"] == "subagent"]
        assert first["spend"] == spent(below, subagents=1)
        assert first["total_tokens"] == used["the subagent"].total + used["goes on"].total
        for by_ in GROUPINGS:
            report = (await client.get(f"/api/usage?by={by_}")).json()
            assert report["total"] == added(everything), by_
            assert len(report["groups"]) == {"session": 4, "model": 2}.get(by_, 1)
        models = {one.pop("key"): one for one in (await client.get("/api/usage?by=model")).json()["groups"]}
        assert models["cheap/model"] == added([title, summed])
        assert model.left == 0


def added(used: list[Usage]) -> dict[str, Any]:
    """A group of calls as it is told."""
    total = sum(used, Usage())
    return {
        "calls": len(used),
        **msgspec.to_builtins(total),
        "cost_usd": total.total / 10**6,
        "estimated": 0,
        "unpriced": 0,
    }


def spent(used: list[Usage], subagents: int = 0) -> dict[str, Any]:
    """Calls as a session tells of them."""
    total = sum(used, Usage()).total
    return {"calls": len(used), "tokens": total, "cost_usd": total / 10**6, "subagents": subagents}


TABLE = """\
model       calls  input  output  reasoning  cache read  cache write     cost
demo/echo       3  3,000     600         90          12            3  $0.3000  1 estimated
demo/small      1  1,000     200         30           4            1  $0.1000
total           4  4,000     800        120          16            4  $0.4000  1 estimated
"""


@pytest.mark.rule("US-5")
def test_the_command_draws_a_table_and_prints_what_http_answers(tmp_path: Path, run: Run) -> None:
    """For a part of the time as for all of it; a store in which nothing was asked has a table of one line."""

    async def prepare() -> Any:
        async with clew.open(config="user") as engine:
            await fill(engine)
            return await engine.usage("day", until="2026-01-31")

    assert run("demo", "--help")[0] == 0  # the environment is this test's own from here on
    report = asyncio.run(prepare())
    assert run("usage", "--by", "model") == (0, TABLE, "")
    # Sessions are told by their titles; one that is gone has none.
    titles = [line.split()[7:] for line in run("usage", "--by", "session")[1].splitlines()[1:]]
    assert titles == [["$0.3000", "1", "estimated", "one"], ["$0.1000", "two"], ["$0.4000", "1", "estimated"]]
    code, out, err = run("usage", "--to", "2026-01-31", "--json")
    assert (code, json.loads(out), err) == (0, json.loads(msgspec.json.encode(report)), "")
    code, out, _ = run("usage", "--from", "2027-01-01", "--by", "workspace")
    assert (code, [line.split()[:2] for line in out.splitlines()]) == (0, [["workspace", "calls"], ["total", "0"]])
    code, _, err = run("usage", "--from", "soon")
    assert (code, err) == (
        2,
        "clew: 'soon' is not a time; use 2026-01-31, 2026-01-31T08:00Z, or epoch milliseconds (invalid_input)\n",
    )
    assert run("usage", "--by", "hour")[0] == 2


@pytest.mark.parametrize(
    ("said", "first", "end"),
    [
        ("2026-01-31", JAN_31, FEB_1),
        ("20260131", JAN_31, FEB_1),
        ("2026-01-31T00:00", JAN_31, JAN_31),
        ("2026-01-31T01:00+01:00", JAN_31, JAN_31),
        (str(JAN_31), JAN_31, JAN_31),
        (JAN_31, JAN_31, JAN_31),
        (None, None, None),
    ],
)
def test_a_day_as_the_end_counts_as_a_whole(said: Any, first: int | None, end: int | None) -> None:
    """A moment is a moment at both ends."""
    assert (parse_bound(said), parse_bound(said, is_end=True)) == (first, end)


@pytest.mark.parametrize("said", ["", "x", "9999-12-31T", "٣", "1" * 30, "2026-02-30"])
def test_what_is_no_time_is_refused(said: str) -> None:
    with pytest.raises(InvalidInput, match="is not a time"):
        parse_bound(said)


@pytest.mark.rule("US-5", "ST-10")
async def test_what_a_deleted_session_has_spent_is_still_counted_and_the_log_knows_it(tmp_path: Path) -> None:
    """Its calls name it no more, in the tables as in the log; also when it went while no log was kept."""
    url, config = f"sqlite:///{tmp_path}/store.db", clew.Config(event_log=True)
    async with clew.open(url, config=config) as engine:
        first, second = await fill(engine)
        before = await engine.usage("model")
        await engine.delete_session(first)
        assert await engine.usage("model") == before
        assert {group.key for group in (await engine.usage("session")).groups} == {second, None}
        assert (await engine.rebuild(tmp_path / "copy.db")).differences == ()
    async with clew.open(url, config=clew.Config()) as engine:
        await engine.delete_session(second)
    async with clew.open(url, config=config) as engine:
        assert (await engine.rebuild(tmp_path / "again.db")).differences == ()
    for name in ("copy.db", "again.db", "store.db"):
        async with clew.open(f"sqlite:///{tmp_path}/{name}", read_only=True) as engine:
            assert await engine.usage("model") == before
    async with clew.open(f"sqlite:///{tmp_path}/again.db", read_only=True) as engine:
        told = [fact.data for fact in await engine.store.load_facts("calls")]
        assert {(call["session_id"], call["turn_id"], call["message_id"]) for call in told} == {(None, None, None)}


@pytest.mark.rule("US-5", "FS-4")
@pytest.mark.parametrize("kind", ["jsonl", "json", "sqlite"])
async def test_what_was_spent_moves_to_another_store_and_is_counted_once(kind: str, tmp_path: Path) -> None:
    """Of sessions that are gone, too; a second time adds nothing, and what a file brings was paid for elsewhere."""
    async with clew.open(f"sqlite:///{tmp_path}/old.db", config=clew.Config()) as old:
        first, second = await fill(old)
        await old.delete_session(second)
        before = await old.usage("day")
        target = f"sqlite:///{tmp_path}/new.db" if kind == "sqlite" else f"{kind}:{tmp_path}/new"
        for _ in range(2):
            async with clew.open(target, config=clew.Config()) as new:
                await convert(old.store, new.store, Mint(), 7)
                assert await new.usage("day") == before
                [moved] = (await new.list_sessions()).sessions
                assert (moved.spend.calls, moved.spend.cost_usd) == (3, 0.3)
        exported = await old.export(first, "json")
        taken = await old.import_session(exported)
        assert (taken.spend.calls, await old.usage("day")) == (0, before)


@pytest.mark.rule("US-5")
async def test_what_other_sessions_have_spent_makes_neither_a_turn_nor_a_deletion_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before a turn only its own session's calls are read, and for a deletion none."""
    providers = FakeProviders(ScriptedModel([say("hi")]))
    async with clew.open("memory:", config=clew.Config(), providers=providers) as engine:
        ids = [(await engine.create_session(title="one")).id for _ in range(3)]
        for session_id in ids:
            for n in range(20):
                await spend(engine, session_id, JAN_31 + n)
        looked: list[ModelCall] = []
        to_call = rows.to_call

        def read(row: rows.Row) -> ModelCall:
            looked.append(to_call(row))
            return looked[-1]

        monkeypatch.setattr(rows, "to_call", read)
        assert (await (await engine.submit(ids[0], "hello")).wait()).status == "completed"
        assert {call.session_id for call in looked} == {ids[0]}
        looked.clear()
        await engine.delete_session(ids[1])
        assert looked == []
        assert (await engine.usage()).total.calls == 61


@pytest.mark.rule("US-5")
async def test_usage_is_added_up_for_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many ask at once: who opens a session meanwhile must find a reader of the store."""
    async with clew.open("memory:", config=clew.Config(), providers=FakeProviders(ScriptedModel())) as engine:
        load, under_way, most = engine.store.load_usage, 0, 0

        async def slowly(query: UsageQuery) -> tuple[UsageGroup, ...]:
            nonlocal under_way, most
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0)
            under_way -= 1
            return await load(query)

        monkeypatch.setattr(engine.store, "load_usage", slowly)
        await asyncio.gather(*(engine.usage(by) for by in GROUPINGS))
        assert most == 1
