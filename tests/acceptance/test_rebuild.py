"""A store made anew from its event log equals the one it is of: after any history, any kill, any time without a log."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from signal import SIGKILL
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import clew
from clew.errors import InvalidInput, NotSupported
from clew.failpoints import FailpointRaised, arm, disarm
from clew.session.history.check import check
from clew.store.base import Rebuilt
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from clew.tools.decorator import tool
from clew.triggers.values.routing import Routing
from tests.acceptance.conversations import talk
from tests.acceptance.history_machine import ACTIONS, SETTINGS, Machine
from tests.rig.child import Child
from tests.rig.failpoint_names import failpoint_names
from tests.rig.fork_server import run_forked
from tests.rig.history_child import Deed
from tests.rig.history_child import Orders as HistoryOrders
from tests.rig.program_002 import Program002
from tests.rig.streamer import Orders
from tests.rounds import rounds

from .conftest import Open
from .ledgers import ask
from .triggered import answered

WITH_LOG: Final = clew.Config(event_log=True)
START_MS: Final = 1_800_000_000_000
HOUR_MS: Final = 3_600_000


def dump(path: Path) -> list[str]:
    """Every row of every table but those of the search index, of streams in flight, and of the store itself."""
    left_out = ("search_", "stream_journal", "journal_marks", "store_")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [
            f"{name} {row}"
            for name in sorted(names)
            if not name.startswith(left_out)
            for row in sorted(connection.execute(f"SELECT * FROM {name}"), key=repr)
        ]


async def rebuilt(engine: clew.Engine, target: Path) -> Rebuilt:
    """Rebuild, and have the file looked at by plain SQL too: its own comparison is not believed alone."""
    made = await engine.rebuild(target)
    assert made.differences == ()
    source = engine.store.path  # type: ignore[attr-defined]  # a file is what these tests are about
    if not ask(source, "SELECT 1 FROM session_state WHERE open_turn_id IS NOT NULL"):
        assert dump(target) == dump(source)
    return made


# Histories


async def _play(seed: int, actions: Sequence[str], own: Any, *, late: int = 0) -> int:
    """A history with a log from its step ``late`` on; what the log then holds."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(Path(folder), seed, kind="sqlite", settings=own)
        machine.config = WITH_LOG if late == 0 else clew.Config()
        await machine.open()
        try:
            for place, action in enumerate(actions, start=1):
                await machine.act(action)
                if place == late:
                    machine.config = WITH_LOG
                    await machine.do_restart("")
            target = Path(folder) / "rebuilt.db"
            facts = (await rebuilt(machine.engine, target)).facts
            async with clew.open(f"sqlite:///{target}", config=WITH_LOG) as engine:
                assert await check(engine.store) == []
                for session_id in machine.sessions:
                    assert await engine.messages(session_id) == await machine.engine.messages(session_id)
            return facts
        finally:
            await machine.close()


@pytest.mark.slow
@pytest.mark.rule("ST-10")
@settings(max_examples=rounds(8))
@given(
    seed=st.integers(0, 10**6),
    actions=st.lists(st.sampled_from(ACTIONS), min_size=5, max_size=40),
    late=st.sampled_from((0, 0, 4)),
)
async def test_a_store_rebuilt_from_its_log_equals_it_after_any_history(
    seed: int, actions: list[str], late: int
) -> None:
    """Prompts, failures, waits, rewinds, branches, summaries, prunes, queues, restarts; the log from the first step
    or switched on later."""
    await _play(seed, actions, SETTINGS[seed % len(SETTINGS)], late=late)


@pytest.mark.slow
@pytest.mark.rule("ST-10")
async def test_a_store_rebuilt_from_its_log_equals_it_after_a_long_history(record_property: Any) -> None:
    """One that has every kind of step in it."""
    facts = await _play(
        5, [*["prompt"] * 4, "answer", "branch", "fork", *Random(5).choices(ACTIONS, k=25)], SETTINGS[2]
    )
    record_property("figure", f"a store of {facts} facts was rebuilt from its log and equals the original")


# Switched on, off, and on again


@pytest.mark.rule("ST-10")
async def test_a_log_that_begins_late_tells_first_what_there_is(tmp_path: Path, open_scenario: Open) -> None:
    """A store that was written without one, prompts and project rules and a queue included."""
    async with open_scenario([say("one"), say("two")]) as s:
        await s.begin()
        await talk(s, "1", "2")
        with pytest.raises(InvalidInput, match="event_log = true"):
            await s.engine.rebuild(tmp_path / "none.db")
        assert not (tmp_path / "none.db").exists()
        path, session_id = s.engine.store.path, s.id  # type: ignore[attr-defined]
    async with clew.open(f"sqlite:///{path}", config=WITH_LOG) as engine:
        facts = await engine.store.load_facts(session_id)
        assert [fact.type for fact in facts].count("session.restated") == 1
        assert facts[0].type == "session.restated"
        await rebuilt(engine, tmp_path / "copy.db")
        assert [fact.type for fact in await engine.store.load_facts("log")] == ["log.started"]
    before = ask(path, "SELECT * FROM event_log")
    async with clew.open(f"sqlite:///{path}", config=WITH_LOG):
        pass
    assert ask(path, "SELECT * FROM event_log") == before


@pytest.mark.rule("ST-10", "ST-11")
async def test_what_happened_without_the_log_is_made_up_for_when_it_is_switched_on_again(tmp_path: Path) -> None:
    """A log with a hole would rebuild what never was: it is refused, and what it missed is told anew, deletions too."""
    path = tmp_path / "store.db"
    url = f"sqlite:///{path}"
    async with clew.open(url, config=WITH_LOG) as engine:
        kept, gone = [await engine.create_session(title=title) for title in ("kept", "gone")]
        await engine.delete_session((await engine.create_session(title="gone before")).id)
    async with clew.open(url, config=clew.Config()) as engine:
        await engine.patch_session(kept.id, title="renamed")
        await engine.delete_session(gone.id)
        new = await engine.create_session(title="new")
        with pytest.raises(InvalidInput, match="event_log = true"):
            await engine.rebuild(tmp_path / "none.db")
    async with clew.open(url, config=WITH_LOG) as engine:
        kinds = {id_: [fact.type for fact in await engine.store.load_facts(id_)] for id_ in (kept.id, gone.id, new.id)}
        assert kinds == {
            kept.id: ["session.created", "session.restated"],
            gone.id: ["session.deleted"],
            new.id: ["session.restated"],
        }
        assert [fact.type for fact in await engine.store.load_facts("log")] == [
            "log.started",
            "log.stopped",
            "log.started",
        ]
        assert (await rebuilt(engine, tmp_path / "copy.db")).sessions == 2


async def test_a_rebuilt_store_goes_on_with_the_log_it_was_made_from(tmp_path: Path) -> None:
    """It is a store like any other, and can itself be rebuilt."""
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=WITH_LOG) as engine:
        session = await engine.create_session(title="a")
        await rebuilt(engine, tmp_path / "copy.db")
    async with clew.open(f"sqlite:///{tmp_path}/copy.db", config=WITH_LOG) as engine:
        await engine.patch_session(session.id, title="b")
        facts = await engine.store.load_facts(session.id)
        assert [(fact.seq, fact.type) for fact in facts] == [(1, "session.created"), (2, "session.changed")]
        await rebuilt(engine, tmp_path / "again.db")


@pytest.mark.rule("ST-10", "EV-1")
async def test_the_events_ledger_and_the_triggers_are_taken_over(tmp_path: Path) -> None:
    """They are no facts of a session; a store without them would answer an event that it has answered."""
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=WITH_LOG) as engine:
        await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello")
        await engine.schedules.add("0 9 * * *", "good morning")
        await engine.webhooks.add("door")
        await answered(engine, 1)
        assert (await engine.rebuild(tmp_path / "copy.db")).differences == ()
    for table, count in (("ledger_events", 2), ("schedules", 1), ("webhooks", 1)):
        rows = ask(tmp_path / "store.db", f"SELECT * FROM {table}")
        assert (len(rows), ask(tmp_path / "copy.db", f"SELECT * FROM {table}")) == (count, rows)


@pytest.mark.rule("ST-10")
async def test_a_unit_that_is_rolled_back_leaves_no_gap_in_the_numbers(tmp_path: Path) -> None:
    """It was told already when its commit failed; what was told goes with it, and so does the number."""
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=WITH_LOG) as engine:
        session = await engine.create_session(title="a")
        arm("writer.before_commit=raise")
        try:
            with pytest.raises(FailpointRaised):
                await engine.patch_session(session.id, title="b")
        finally:
            disarm()
        await engine.patch_session(session.id, title="c")
        facts = await engine.store.load_facts(session.id)
        assert [(fact.seq, fact.data["metadata"]["title"]) for fact in facts] == [(1, "a"), (2, "c")]
        assert ask(tmp_path / "store.db", "SELECT n FROM event_log ORDER BY n") == [(1,), (2,), (3,)]
        await rebuilt(engine, tmp_path / "copy.db")


# In use


@pytest.mark.rule("ST-10")
async def test_a_store_can_be_rebuilt_while_it_streams_and_while_it_waits(tmp_path: Path) -> None:
    """Of an answer in flight the log has what is complete; what waits for a human is all there."""

    @tool
    async def touch(number: int) -> str:
        """Change something."""
        return "done"

    gate = Gate()
    path = tmp_path / "logged.db"
    model = ScriptedModel([[say("first "), wait(gate), call("touch", {"number": 1})], say("well")])
    providers = FakeProviders(model)
    async with clew.open(f"sqlite:///{path}", config=WITH_LOG, providers=providers, tools=[touch]) as engine:
        s = await Scenario(engine, model, tmp_path).begin()
        submission = await s.send("go")
        await gate.reached.wait()
        await rebuilt(engine, tmp_path / "streaming.db")
        gate.set()
        await s.settled()
        status = await engine.get_status(s.id)
        assert len(status.waiting) == 1
        await rebuilt(engine, tmp_path / "waiting.db")
        [request] = status.waiting
        await engine.answer(s.id, str(request.approval_id), "project")
        await submission.wait()
        await s.settled()
        await rebuilt(engine, tmp_path / "answered.db")
    states = "SELECT tool_state FROM chat_parts WHERE tool_call_id IS NOT NULL"
    assert [ask(tmp_path / name, states) for name in ("streaming.db", "waiting.db", "answered.db")] == [
        [],
        [("approval-requested",)],
        [("output-available",)],
    ]
    async with clew.open(
        f"sqlite:///{tmp_path}/waiting.db", config=WITH_LOG, providers=providers, tools=[touch]
    ) as engine:
        assert len((await engine.get_status(s.id)).waiting) == 1


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of one turn, with a log, that nobody has open."""
    path = tmp_path_factory.mktemp("logged") / "logged.db"

    async def make() -> None:
        providers = FakeProviders(ScriptedModel([say("one")]))
        async with clew.open(f"sqlite:///{path}", config=WITH_LOG, providers=providers) as engine:
            session = await engine.create_session(title="a")
            await (await engine.submit(session.id, "go")).wait()

    asyncio.run(make())
    return path


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("UPDATE chat_sessions SET archived_at = 5", "a row of chat_sessions differs"),
        ("UPDATE chat_messages SET role = 'system'", "a row of chat_messages differs"),
        ("UPDATE chat_parts SET data_json = '{}'", "a row of chat_parts differs"),
        ("DELETE FROM head_moves", "a row of head_moves is only in the log"),
        ("DELETE FROM turn_messages", "a row of turn_messages is only in the log"),
        ("UPDATE chat_turns SET status = 'failed'", "a row of chat_turns differs"),
        ("UPDATE turn_steps SET input = input + 1", "a row of turn_steps differs"),
        ("UPDATE system_prompts SET body = 'x'", "a row of system_prompts differs"),
        ("INSERT INTO project_rules VALUES ('/p', '[]', 1)", "a row of project_rules is not in the log"),
        (
            "INSERT INTO message_queue SELECT id, session_id, 1, 0 FROM chat_messages LIMIT 1",
            "a row of message_queue is not in the log",
        ),
        ("DELETE FROM event_log WHERE type = 'part.settled'", "a row of chat_parts is not in the log"),
    ],
)
async def test_a_table_and_a_log_that_disagree_are_found_out(
    logged: Path, tmp_path: Path, change: str, what: str
) -> None:
    """The control: whatever the log is to give back, one row that is changed behind its back shows."""
    path = tmp_path / "store.db"
    copy(logged, path)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER turn_messages_unlinked")  # what is lost is counted by nobody
        connection.execute(change)
    async with clew.open(f"sqlite:///{path}", read_only=True) as engine:
        made = await engine.rebuild(tmp_path / "copy.db")
    assert {damage.what for damage in made.differences} == {what}
    assert all(damage.id for damage in made.differences)


async def test_nothing_is_written_over_and_memory_has_nothing_to_rebuild(tmp_path: Path) -> None:
    """A target that is there stays; a store without a file says so."""
    (tmp_path / "there.db").write_text("mine")
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=WITH_LOG) as engine:
        with pytest.raises(InvalidInput, match="already exists"):
            await engine.rebuild(tmp_path / "there.db")
    assert (tmp_path / "there.db").read_text() == "mine"
    async with clew.open("memory:", config=WITH_LOG) as engine:
        with pytest.raises(NotSupported):
            await engine.rebuild(tmp_path / "new.db")


async def test_a_rebuilt_store_has_its_name_only_once_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before that, nothing is left that looks like an empty store; what lay beside the name is gone."""
    target, seen = tmp_path / "new.db", set()
    module = importlib.import_module("clew.store.sql.sqlite.rebuild")
    restore = module.restore

    def watched(sql: Any, fact: Any) -> None:
        seen.add(target.exists())
        restore(sql, fact)

    monkeypatch.setattr(module, "restore", watched)
    async with clew.open(f"sqlite:///{tmp_path}/store.db", config=WITH_LOG) as engine:
        await engine.create_session(model="demo/echo")
        before = set(os.listdir(tmp_path))
        (tmp_path / "new.db-wal").write_bytes(b"of another store")
        assert (await engine.rebuild(target)).differences == ()
        assert (seen, set(os.listdir(tmp_path)) - before) == ({False}, {target.name})
        assert target.stat().st_mode & 0o077 == 0


# Killed


async def agrees(path: Path, name: str, *, in_portions: bool = False) -> None:
    """The log of a store and its tables say the same, as they were left and after recovery. What was left between two
    portions is in no log."""
    async with clew.open(f"sqlite:///{path}", read_only=True) as engine:
        left = path.with_name(f"{name}-left.db")
        if in_portions:
            assert (await engine.rebuild(left)).differences == ()
        else:
            await rebuilt(engine, left)
    async with clew.open(f"sqlite:///{path}", config=WITH_LOG) as engine:
        assert await check(engine.store) == []
        await rebuilt(engine, path.with_name(f"{name}-recovered.db"))


@pytest.mark.kill
@pytest.mark.rule("ST-10")
@pytest.mark.parametrize(
    "points",
    [
        ("recorder.before_submit=kill@60",),
        ("recorder.before_show=kill@60",),
        ("writer.in_transaction=kill@60", "writer.in_transaction=kill@3"),
        ("writer.before_commit=kill@60", "writer.before_commit=kill@7"),
        ("writer.after_commit_before_ack=kill@60", "writer.after_commit_before_ack=kill@2"),
        ("writer.checkpoint=kill",),
    ],
    ids=lambda points: points[0].partition("=")[0],
)
async def test_killed_anywhere_the_log_and_the_tables_say_the_same(tmp_path: Path, points: Sequence[str]) -> None:
    """Streams of every kind, killed at one point, and the recovery or the next life at another."""
    path = tmp_path / "store.db"
    for number, point in enumerate(points):
        orders = Orders(store=f"sqlite:///{path}", seed=number, event_log=True)
        with Child(orders, failpoints=point) as child:
            assert child.wait() == -SIGKILL, child.how_it_ended()
        async with clew.open(f"sqlite:///{path}", read_only=True) as engine:
            await rebuilt(engine, tmp_path / f"left-{number}.db")
    await agrees(path, "last")


@pytest.mark.kill
@pytest.mark.rule("ST-10")
@pytest.mark.parametrize("point", ["recovery.before_fold=kill@2", "recovery.before_settle=kill@3"])
async def test_killed_in_recovery_the_log_and_the_tables_say_the_same(tmp_path: Path, point: str) -> None:
    """Some streams folded and some not, some turns settled and some not."""
    path = tmp_path / "store.db"
    with Child(Orders(store=f"sqlite:///{path}", stage="hold", streams=4, event_log=True)) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    with Child(Orders(store=f"sqlite:///{path}", event_log=True), failpoints=point) as child:
        assert child.wait() == -SIGKILL, child.how_it_ended()
    await agrees(path, "recovering")


@pytest.mark.kill
@pytest.mark.rule("ST-10")
async def test_killed_while_the_log_is_switched_on_it_is_off_and_begins_whole_the_next_time(tmp_path: Path) -> None:
    """All that there is, or nothing."""
    path = tmp_path / "store.db"
    with Child(Orders(store=f"sqlite:///{path}", turns=1, size=40)) as child:
        assert child.wait() == 0
    with Child(Orders(store=f"sqlite:///{path}", event_log=True), failpoints="log.before_switch=kill") as child:
        assert child.wait() == -SIGKILL
    assert ask(path, "SELECT count(*) FROM event_log") == [(0,)]
    async with clew.open(f"sqlite:///{path}", config=WITH_LOG) as engine:
        await rebuilt(engine, tmp_path / "copy.db")


@pytest.mark.kill
@pytest.mark.rule("ST-10", "ST-13")
async def test_killed_while_another_programs_session_is_taken_in_it_is_taken_in_the_next_time(tmp_path: Path) -> None:
    """With the log, which is told all of it: both have it, or neither."""
    path = tmp_path / "store.db"
    with Child(Orders(store=f"sqlite:///{path}", turns=1, size=40, event_log=True)) as child:
        assert child.wait() == 0
    [(before,)] = ask(path, "SELECT count(*) FROM session_state")
    program = Program002(path)
    session_id = program.open_session()
    program.say(session_id, "hello")
    program.answer(session_id, "there")
    program.close()
    with Child(Orders(store=f"sqlite:///{path}", event_log=True), failpoints="writer.adopted=kill") as child:
        assert child.wait() == -SIGKILL
    assert ask(path, "SELECT count(*) FROM session_state") == [(before,)]
    async with clew.open(f"sqlite:///{path}", config=WITH_LOG) as engine:
        assert len(await engine.messages(session_id)) == 2
        assert await check(engine.store) == []
        # Its own comparison alone: the other program encodes its JSON in other words.
        assert (await engine.rebuild(tmp_path / "recovered.db")).differences == ()
    async with clew.open(f"sqlite:///{tmp_path}/recovered.db", config=WITH_LOG) as engine:
        assert await check(engine.store) == []


@pytest.fixture(scope="module")
def talked(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A session of eight turns, the first ones summarised, in a store with a log."""
    path = tmp_path_factory.mktemp("talked") / "talked.db"
    assert do(path, "talk", 0) == 0
    [(session_id,)] = ask(path, "SELECT id FROM chat_sessions")
    return path, session_id


def copy(path: Path, target: Path) -> None:
    """A store that nobody has open."""
    for suffix in ("", "-wal"):
        if Path(f"{path}{suffix}").exists():
            shutil.copy(f"{path}{suffix}", f"{target}{suffix}")


def do(path: Path, deed: Deed, hour: int, session_id: str | None = None, failpoints: str = "") -> int:
    orders = HistoryOrders(
        store=f"sqlite:///{path}",
        deed=deed,
        now_ms=START_MS + hour * HOUR_MS,
        session_id=session_id,
        failpoints=failpoints,
        event_log=True,
    )
    done = run_forked("tests.rig.history_child", msgspec.json.encode(orders).decode())
    assert done.returncode in (0, -SIGKILL), done.stderr.decode()[-4000:]
    return done.returncode


@pytest.mark.kill
@pytest.mark.rule("ST-10")
@pytest.mark.parametrize(
    ("deed", "point"),
    [
        ("rewind", "history.before_rewind=kill"),
        ("fork", "history.before_branch=kill"),
        ("branch_long", "history.between_portions=kill"),
        ("delete", "store.between_deletions=kill"),
        ("branch", "writer.before_commit=kill"),
        ("compact", "compact.before_commit=kill"),
        ("make_room", "writer.after_commit_before_ack=kill@8"),
        ("make_room", "run.before_model_call=kill@2"),
        ("make_room", "run.model_asked=kill@2"),
        ("make_room", "run.before_tools=kill@2"),
        ("make_room", "run.tool_done=kill"),
        ("make_room", "run.before_step_end=kill@2"),
        ("make_room", "run.before_settle=kill"),
    ],
)
async def test_killed_while_the_past_is_changed_the_log_and_the_tables_say_the_same(
    talked: tuple[Path, str], tmp_path: Path, deed: Deed, point: str
) -> None:
    """What is one unit is in both or in neither."""
    path = tmp_path / "store.db"
    copy(talked[0], path)
    assert do(path, deed, 1, talked[1], point) == -SIGKILL
    await agrees(path, "killed", in_portions=deed in ("branch_long", "delete"))


@pytest.mark.kill
def test_the_log_is_judged_after_a_kill_at_every_failpoint() -> None:
    """All but those of a migration, over before a log begins, of the events ledger, and of folders and snapshots, which
    keep none."""
    named = set(re.findall(r"\"([a-z_]+\.[a-z_]+)=kill", Path(__file__).read_text()))
    assert {
        name
        for name in failpoint_names()
        if not name.startswith(("migrate.", "ledger.", "files.", "snapshots.", "restore."))
    } == named
