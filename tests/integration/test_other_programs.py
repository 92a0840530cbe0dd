"""Another program in the same file: it knows the three tables and nothing of clew; each goes on where the other was.

What it does is done by :mod:`tests.rig.program_002`, which is made from the description of the tables alone.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import SessionNotFound, StoreUnavailable
from clew.session.api import Engine
from clew.session.history.check import check
from clew.store.sql.adopt import Adopter
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait
from clew.triggers.values.routing import Routing
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.http_client import served
from tests.rig.program_002 import SCHEMA, Program002, make_plain

pytestmark = pytest.mark.rule("ST-13")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


@pytest.fixture
def program(path: Path) -> Iterator[Program002]:
    """The other program, on a database that it has made itself."""
    make_plain(path)
    with closing(Program002(path)) as program:
        yield program


@asynccontextmanager
async def opened(path: Path, **options: Any) -> AsyncIterator[Engine]:
    """clew on that file, with a model that says again what it was asked."""
    model = ScriptedModel(otherwise=lambda request: say(f"re {request.messages[-1].parts[0]['text']}"))
    options = {"providers": FakeProviders(model), "config": clew.Config(), **options}
    async with clew.open(f"sqlite:///{path}", **options) as engine:
        yield engine


async def told(engine: Engine, session_id: str, view: Any = "visible") -> list[str]:
    """What clew shows of a session, one line a message."""
    return [
        f"{message.role}: {' '.join(str(part['text']) for part in message.parts if part['type'] == 'text')}"
        for message in await engine.messages(session_id, view=view)
    ]


def said(program: Program002, session_id: str) -> list[str]:
    """What the other program shows of it."""
    return [
        f"{message['role']}: {' '.join(part['text'] for part in message['parts'] if part['type'] == 'text')}"
        for message in program.conversation(session_id)
    ]


async def ask(engine: Engine, session_id: str, text: str) -> None:
    await (await engine.submit(session_id, text)).wait()


async def test_a_database_of_another_program_opens_and_is_gone_on_with(path: Path, program: Program002) -> None:
    """Listed, read, continued, rewound and branched like a session of clew's own; its names and words stay."""
    session_id = program.open_session("their_own-name")
    first = program.say(session_id, "hello", "m-1")
    program.answer(session_id, "there", tool=True, usage=20)
    second = program.say(session_id, "wrong")
    program.answer(session_id, "way")
    program.rewind(session_id, second)
    program.say(session_id, "unanswered")
    async with opened(path) as engine:
        (session,) = (await engine.list_sessions()).sessions
        assert (session.id, session.prompt_tokens, session.total_tokens) == (session_id, 27, 29)
        before = ["user: hello", "assistant: there", "user: unanswered"]
        assert await told(engine, session_id) == before == said(program, session_id)
        await (await engine.continue_turn(session_id)).wait()
        await ask(engine, session_id, "more")
        after = [*before, "assistant: re unanswered", "user: more", "assistant: re more"]
        assert await told(engine, session_id) == after == said(program, session_id)
        branch = await engine.branch(session_id, first)
        assert await told(engine, branch.id) == ["user: hello"] == said(program, branch.id)
        await engine.rewind(session_id, first)
        assert await told(engine, session_id) == ["user: hello"] == said(program, session_id)
        await engine.unrewind(session_id)
        assert await told(engine, session_id) == after == said(program, session_id)
        assert await check(engine.store) == []
    async with opened(path) as engine:
        assert await told(engine, session_id) == after
        assert await check(engine.store) == []


async def test_what_is_written_into_an_open_store_is_there_at_the_next_look(path: Path) -> None:
    """Over HTTP: a new session, new turns, and an answer that is still growing."""
    async with served(store=f"sqlite:///{path}") as client:
        mine = (await client.post("/api/sessions", {"title": "mine"})).json()["id"]
        with closing(Program002(path)) as program:
            theirs = program.open_session()
            program.say(theirs, "hello")
            listed = (await client.get("/api/sessions")).json()
            assert {one["id"] for one in listed["sessions"]} == {mine, theirs}
            answer = program.begin_answer(theirs)
            for text in ("gro", "growing"):
                program.put_part(answer, {"type": "text", "text": text})
            program.say(mine, "in yours")
            for session_id, lines in ((theirs, ["hello", "gro growing"]), (mine, ["in yours"])):
                shown = (await client.get(f"/api/sessions/{session_id}/messages")).json()
                texts = [" ".join(part["text"] for part in one["parts"]) for one in shown["messages"]]
                assert texts == lines


async def test_what_was_taken_in_grows_until_something_follows_it_and_is_sealed_then(
    path: Path, program: Program002
) -> None:
    """From then on a change to it is damage."""
    session_id = program.open_session()
    program.say(session_id, "hello")
    answer = program.begin_answer(session_id)
    part = program.put_part(answer, {"type": "text", "text": "gro"})
    async with opened(path) as engine:
        assert await told(engine, session_id) == ["user: hello", "assistant: gro"]
        program.put_part(answer, {"type": "text", "text": "growing"}, part)
        assert await told(engine, session_id) == ["user: hello", "assistant: growing"]
        assert await check(engine.store) == []
        assert await engine.store.seals(session_id) == {}
        await ask(engine, session_id, "next")
        assert len(await told(engine, session_id)) == 4
        assert answer in await engine.store.seals(session_id)
        program.put_part(answer, {"type": "text", "text": "forged"}, part)
        (problem,) = await check(engine.store)
        assert (problem.id, "seal" in problem.what) == (answer, True)


@pytest.mark.parametrize("keep", [False, True])
async def test_what_another_program_hides_at_the_end_of_a_line_is_a_rewind(path: Path, keep: bool) -> None:
    """With its message or without; what follows hangs where the head went, and the rewind can be undone."""
    async with opened(path) as engine:
        session_id = (await engine.create_session()).id
        for text in ("one", "two", "three"):
            await ask(engine, session_id, text)
        with closing(Program002(path)) as program:
            whole = said(program, session_id)
            two = next(one["id"] for one in program.conversation(session_id) if one["parts"][0].get("text") == "two")
            program.rewind(session_id, two, keep_first=keep)
            left = whole[: 3 if keep else 2]
            assert await told(engine, session_id) == left == said(program, session_id)
            assert (await engine.reflog(session_id))[0].why == "rewind"
            assert await check(engine.store) == []
            if not keep:
                await engine.unrewind(session_id)
                assert await told(engine, session_id) == whole == said(program, session_id)
                program.rewind(session_id, two)
            program.answer(session_id, "instead")
            assert await told(engine, session_id) == [*left, "assistant: instead"] == said(program, session_id)
            assert await check(engine.store) == []


@pytest.mark.rule("ST-13")
async def test_an_answer_of_another_program_that_comes_after_a_rewind_stands_beside_what_that_hid(path: Path) -> None:
    """By its time it comes behind what was hidden. So the rewind is not undone over it, and whoever goes to what was
    hidden sees that without it: both programs see the same, in one order."""
    async with opened(path) as engine:
        session_id = (await engine.create_session()).id
        with closing(Program002(path)) as program:
            program.say(session_id, "one")
            await told(engine, session_id)
            program.say(session_id, "two")
            program.answer(session_id, "to two")
            whole = await told(engine, session_id)
            head = (await engine.store.load_state(session_id)).head_turn_id
            two = next(one.id for one in await engine.messages(session_id) if one.parts[0].get("text") == "two")
            await engine.rewind(session_id, two, mode="edit")
            program.answer(session_id, "a late answer")
            assert (
                await told(engine, session_id) == ["user: one", "assistant: a late answer"] == said(program, session_id)
            )
            with pytest.raises(clew.NewerTurns):
                await engine.unrewind(session_id)
            await engine.set_head(session_id, head)
            assert await told(engine, session_id) == whole == said(program, session_id)
            assert await check(engine.store) == []


async def test_a_queue_is_one_queue_whoever_put_something_into_it(path: Path, program: Program002) -> None:
    """What they queue is paused here; what we cancel they skip; what they fire or hide is gone from ours."""
    session_id = program.open_session()
    async with opened(path) as engine:
        queued = [program.queue(session_id, text) for text in ("a", "b", "c", "d")]
        assert [message.id for message in await engine.queue(session_id)] == queued
        assert (await engine.get_status(session_id)).paused_by == "restart"
        await engine.cancel_queued(session_id, queued[0])
        assert program.queued(session_id) == queued[1:]
        hidden = next(one["metadata"] for one in program.messages(session_id) if one["id"] == queued[0])
        assert (hidden["hidden_by"], hidden["hidden_at"]) == ("cancelled", hidden["cancelled_at"])
        program.hide(queued[1])
        program.fire(queued[2])
        program.answer(session_id, "to c")
        assert [message.id for message in await engine.queue(session_id)] == queued[3:]
        assert await told(engine, session_id) == ["user: c", "assistant: to c"]
        await (await engine.continue_turn(session_id, queue=True)).wait()
        lines = ["user: c", "assistant: to c", "user: d", "assistant: re d"]
        assert await told(engine, session_id) == lines == said(program, session_id)
        assert (await engine.get_status(session_id)).paused_by is None
        assert await check(engine.store) == []


async def test_a_summary_of_another_program_stands_for_what_it_summarised(path: Path, program: Program002) -> None:
    """It is a compaction like clew's own; what it hid is not taken for a rewind."""
    session_id = program.open_session()
    program.say(session_id, "one")
    program.answer(session_id, "to one")
    kept = program.say(session_id, "two")
    program.answer(session_id, "to two")
    program.compact(session_id, "what was said", kept)
    async with opened(path) as engine:
        assert await told(engine, session_id) == ["assistant: ", "user: two", "assistant: to two"]
        sent = await told(engine, session_id, "model")
        assert ("what was said" in sent[0], sent[1:]) == (True, ["user: two", "assistant: to two"])
        assert [turn.kind for turn in (await engine.store.load_tree(session_id)).turns.values()].count(
            "compaction"
        ) == 1
        await ask(engine, session_id, "three")
        assert said(program, session_id)[-2:] == ["user: three", "assistant: re three"]
        assert await check(engine.store) == []


async def test_a_summary_that_was_written_in_two_moments_covers_what_it_covers_since_one(
    path: Path, program: Program002
) -> None:
    """A walk found it: its part was a millisecond younger than its message, and two times were told."""
    session_id = program.open_session()
    program.say(session_id, "one")
    kept = program.say(session_id, "two")
    marker = program.compact(session_id, "what was said", kept)
    program.execute("UPDATE chat_parts SET updated_at = updated_at + 5 WHERE message_id = ?", marker)
    async with opened(path) as engine:
        assert await told(engine, session_id) == ["assistant: ", "user: two"]
        assert await check(engine.store) == []


async def test_a_summary_that_is_hidden_where_it_still_counts_is_shown_again(path: Path) -> None:
    """A walk found it: by its time it comes last, and was hidden along with a rewind to what it had kept."""
    async with opened(path) as engine:
        session_id = (await engine.create_session()).id
        for text in ("one", "two", "three"):
            await ask(engine, session_id, text)
        with closing(Program002(path)) as program:
            kept = next(one["id"] for one in program.conversation(session_id) if one["parts"][0].get("text") == "two")
            marker = program.compact(session_id, "what was said", kept)
            before = await told(engine, session_id)
            await engine.rewind(session_id, kept)
            assert await told(engine, session_id) == ["assistant: ", "user: two"]
            program.hide(marker)
            assert await told(engine, session_id) == ["assistant: ", "user: two"]
            assert marker in [one["id"] for one in program.conversation(session_id)]
            await engine.unrewind(session_id)
            assert await told(engine, session_id) == before
            assert await check(engine.store) == []


async def test_what_comes_while_a_run_is_live_waits_until_that_has_settled(path: Path) -> None:
    """And hangs below it."""
    gate = Gate()
    model = ScriptedModel(otherwise=lambda _: [wait(gate), say("at last")])
    async with opened(path, providers=FakeProviders(model)) as engine:
        session_id = (await engine.create_session()).id
        running = await engine.submit(session_id, "slowly")
        await gate.reached.wait()
        with closing(Program002(path)) as program:
            program.say(session_id, "beside it")
            assert await told(engine, session_id) == ["user: slowly", "assistant: "]
            gate.set()
            await running.wait()
            assert await told(engine, session_id) == ["user: slowly", "assistant: at last", "user: beside it"]
            assert await check(engine.store) == []


async def test_a_rewind_beside_a_live_run_counts_once_that_has_settled(path: Path) -> None:
    """Also when somebody looked meanwhile, and nobody but clew has committed since."""
    gate = Gate()
    model = ScriptedModel([say("to one"), [wait(gate), say("done")]])
    async with opened(path, providers=FakeProviders(model)) as engine:
        session_id = (await engine.create_session()).id
        await ask(engine, session_id, "one")
        running = await engine.submit(session_id, "two")
        await gate.reached.wait()
        with closing(Program002(path)) as program:
            program.rewind(session_id, program.conversation(session_id)[2]["id"])
            assert await told(engine, session_id) == ["user: one", "assistant: to one", "user: two", "assistant: "]
            gate.set()
            await running.wait()
            left = ["user: one", "assistant: to one"]
            assert await told(engine, session_id) == left == said(program, session_id)
            assert await check(engine.store) == []


async def test_what_cannot_be_understood_is_named_and_left_alone(path: Path, program: Program002) -> None:
    """It is not listed, as it could not be read; and it is not touched."""
    good = program.open_session()
    program.say(good, "hello")
    odd = program.add(good, "user", [{"type": "text", "text": "half"}])
    program.execute("UPDATE chat_parts SET data_json = '{\"type\": ' WHERE message_id = ?", odd)
    for id_, model in (("no model", None), ("named badly!", "{}"), ("half", "{")):
        program.open_session(id_)
        if model is not None:
            program.execute("UPDATE chat_sessions SET model_json = ? WHERE id = ?", model, id_)
    rows = "SELECT * FROM chat_sessions WHERE id <> ?"
    before = program.execute(rows, good)
    async with opened(path) as engine:
        assert [session.id for session in (await engine.list_sessions()).sessions] == [good]
        assert await told(engine, good) == ["user: hello"]
        with pytest.raises(SessionNotFound):
            await engine.messages("half")
        problems = await check(engine.store)
    assert {(problem.session_id, problem.id) for problem in problems} >= {
        ("no model", None),
        ("named badly!", None),
        ("half", None),
        (good, odd),
    }
    assert program.execute(rows, good) == before


async def test_no_row_of_another_program_ends_the_writing_or_hides_what_is_beside_it(
    path: Path, program: Program002
) -> None:
    """Whatever stands in it: the file is not left locked, clew goes on, and the other sessions are there."""
    async with opened(path) as engine:
        mine = (await engine.create_session()).id
        await ask(engine, mine, "one")
        for id_, column, value in (("late", "updated_at", "noon"), ("bytes", "metadata_json", b"\xff")):
            program.open_session(id_, label="one of mine")
            what = f"UPDATE chat_sessions SET {column} = CAST(? AS TEXT) WHERE id = ?"
            program.execute(what, value, id_)
        what = "INSERT INTO chat_sessions (id, agent, model_json, created_at, updated_at) VALUES ({}, '', '', 1, 1)"
        for id_ in ("NULL", "CAST(x'ff' AS TEXT)", "x'6f6e65'"):
            program.execute(what.format(id_))
        what = "INSERT INTO chat_messages VALUES (?, ?, 'user', ?, ?, 1)"
        for values in (("list", mine, "[]", 1), ("noon", mine, "{}", "noon"), (None, mine, "{}", 1)):
            program.execute(what, *values)
        theirs = program.open_session()
        program.say(theirs, "hello")
        listed = [session.id for session in (await engine.list_sessions()).sessions]
        assert (sorted(listed), await told(engine, theirs)) == (sorted([mine, theirs]), ["user: hello"])
        await ask(engine, mine, "two")
        given = await engine.events.receive("ext", "1", Routing(label="one of mine"), text="hi")
        assert given.session_id not in ("late", "bytes")
        program.say(theirs, "again")
        assert await told(engine, mine) == ["user: one", "assistant: re one", "user: two", "assistant: re two"]
        assert await told(engine, theirs) == ["user: hello", "user: again"]
        named = {
            problem.session_id if problem.session_id != mine else problem.id for problem in await check(engine.store)
        }
        assert named == {"late", "bytes", "one", "", "\ufffd", "list", "noon", None}


async def test_what_was_locked_away_is_looked_for_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """clew gave up the wait for the lock; nobody has committed since."""
    monkeypatch.setattr("clew.store.sql.sqlite.connection.BUSY_TIMEOUT_MS", 1)
    async with opened(path, config=clew.Config(lock_wait_ms=0)) as engine:
        with closing(Program002(path)) as program:
            session_id = program.open_session()
            assert await told(engine, session_id) == []
            program.say(session_id, "hello")
            program.execute("BEGIN IMMEDIATE")
            assert await told(engine, session_id) == []
            program.execute("ROLLBACK")
            assert await told(engine, session_id) == ["user: hello"]


async def test_reading_asks_for_nothing_as_long_as_nobody_else_has_written(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither again and again, nor after commits of clew's own; and once when somebody has."""
    looked: list[str] = []
    has_news = Adopter.has_news

    def counted(self: Adopter, session_id: str) -> bool:
        looked.append(session_id)
        return has_news(self, session_id)

    monkeypatch.setattr(Adopter, "has_news", counted)
    async with opened(path) as engine:
        session_id = (await engine.create_session()).id
        await engine.messages(session_id)
        looked.clear()
        for text in ("one", "two"):
            await ask(engine, session_id, text)
            await engine.messages(session_id)
        assert looked == []
        with closing(Program002(path)) as program:
            program.open_session()
        await engine.messages(session_id)
        await engine.messages(session_id)
        assert looked == [session_id]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("cost_usd REAL NOT NULL DEFAULT 0,", ""), "chat_sessions: it has no column cost_usd"),
        (("role TEXT NOT NULL,", "role TEXT NOT NULL, extra TEXT NOT NULL,"), "its column extra requires a value"),
        ((" ON DELETE CASCADE", ""), "chat_messages: its foreign keys do not delete rows with their parents"),
        (
            ("CREATE INDEX m1", "CREATE TABLE blobs (x); CREATE TABLE clew_blobs (x); CREATE INDEX m1"),
            "clew needs the name",
        ),
    ],
)
def test_a_database_that_cannot_be_shared_is_refused_and_not_touched(
    path: Path, change: tuple[str, str], why: str
) -> None:
    """It is said what is missing."""

    async def attempt() -> None:
        async with opened(path):
            pass

    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(SCHEMA.replace(*change))
    before = path.read_bytes()
    with pytest.raises(StoreUnavailable, match=why):
        asyncio.run(attempt())
    assert (path.read_bytes(), [one.name for one in path.parent.iterdir()]) == (before, [path.name])


async def test_a_session_of_another_program_is_carried_like_any_other(
    path: Path, program: Program002, tmp_path: Path
) -> None:
    """Exported and imported, and branched where it still grows: what was copied does not grow any more."""
    session_id = program.open_session("theirs")
    program.say(session_id, "hello", "m-1")
    answer = program.answer(session_id, "there")
    async with opened(path) as engine, opened(tmp_path / "else.db") as other:
        imported = await other.import_session(await engine.export(session_id))
        assert await told(other, imported.id) == ["user: hello", "assistant: there"]
        branch = await engine.branch(session_id, answer)
        assert await told(engine, branch.id) == ["user: hello", "assistant: there"]
        for one in (engine, other):
            assert await check(one.store) == []


@pytest.mark.slow
async def test_a_program_that_keeps_the_file_locked_stops_no_reader(path: Path, program: Program002) -> None:
    """What it committed before is taken in once it lets go."""
    session_id = program.open_session()
    async with opened(path) as engine:
        assert await told(engine, session_id) == []
        program.say(session_id, "hello")
        program.execute("BEGIN IMMEDIATE")
        assert await told(engine, session_id) == []
        program.execute("ROLLBACK")
        await engine.rename_session(session_id, "behind what waited for the lock")
        assert await told(engine, session_id) == ["user: hello"]


async def test_what_comes_while_a_turn_waits_for_a_human_waits_too(path: Path) -> None:
    """And nothing is wrong with that."""
    model = ScriptedModel([[call("bash", {"command": "rm -r x"})], say("done"), say("done")])
    async with opened(path, providers=FakeProviders(model)) as engine:
        session_id = (await engine.create_session(workspace_root=str(path.parent))).id
        async for _ in engine.run(session_id, "clean up"):
            pass
        assert len((await engine.get_status(session_id)).waiting) == 1
        with closing(Program002(path)) as program:
            program.say(session_id, "beside it")
            assert len(await told(engine, session_id)) == 2
            assert await check(engine.store) == []
            await engine.abort(session_id)
            assert (await told(engine, session_id))[-1] == "user: beside it"
            assert await check(engine.store) == []


def test_commands_that_read_take_in_first_what_another_program_wrote(path: Path, program: Program002, run: Run) -> None:
    """A database that clew never saw, and what came later."""
    session_id = program.open_session("theirs", title="Theirs")
    program.say(session_id, "hello")
    code, out, err = run("ls", "--store", f"sqlite:///{path}")
    assert (code, "Theirs" in out, err) == (0, True, "")
    program.answer(session_id, "there")
    code, out, _ = run("show", session_id, "--store", f"sqlite:///{path}")
    assert (code, "hello" in out, "there" in out) == (0, True, True)
    assert run("check", "--store", f"sqlite:///{path}")[0] == 0


def test_a_conversion_takes_along_what_another_program_wrote_or_names_it(
    path: Path, program: Program002, run: Run, tmp_path: Path
) -> None:
    """Also of a file that clew has never seen; the ledger's file, and the judge, take it in as well."""
    program.open_session("not a name")
    session_id = program.open_session("theirs")
    program.say(session_id, "hello")
    source, target = f"sqlite:///{path}", f"sqlite:///{tmp_path}/else.db"
    code, out, err = run("convert", source, target)
    assert (code, "theirs  theirs" in out, "not a name" in err) == (1, True, True)
    program.say(session_id, "more")
    code, out, _ = run("check", "--store", source)
    assert (code, [line.partition(":")[0] for line in out.splitlines()]) == (
        7,
        ["not a name", "1 sessions, 1 problems"],
    )
    program.open_session("later")
    assert run("ledger", str(tmp_path / "ledger.db"), "--store", source)[0] == 0
    with closing(sqlite3.connect(tmp_path / "ledger.db")) as connection:
        assert connection.execute("SELECT count(*) FROM turns").fetchone() == (2,)


@pytest.mark.parametrize("mode", ["resend", "edit"])
async def test_what_another_program_shows_again_is_a_rewind_undone(path: Path, program: Program002, mode: Any) -> None:
    """Of clew's own rewind, over several turns, with words that follow; a part of a turn moves nothing."""
    session_id = program.open_session()
    program.say(session_id, "one")
    program.answer(session_id, "1")
    second = program.say(session_id, "two")
    answer = program.answer(session_id, "2")
    third = program.say(session_id, "three")
    program.answer(session_id, "3")
    whole = said(program, session_id)
    show = "UPDATE chat_messages SET metadata_json = json_remove(metadata_json, '$.hidden_at', '$.hidden_by')"
    async with opened(path) as engine:
        assert await told(engine, session_id) == whole
        await engine.rewind(session_id, second, mode=mode)
        short = await told(engine, session_id)
        if mode == "edit":
            program.execute(f"{show} WHERE id = ?", second)
            assert await told(engine, session_id) == short
        program.execute(f"{show} WHERE id IN (?, ?)", second, answer)
        assert await told(engine, session_id) == whole[:4] == said(program, session_id)
        assert await check(engine.store) == []
        program.execute(show)
        assert await told(engine, session_id) == whole == said(program, session_id)
        program.rewind(session_id, third)
    program.execute(show)
    program.say(session_id, "four")
    async with opened(path) as engine:
        assert await told(engine, session_id) == [*whole, "user: four"] == said(program, session_id)
        assert await check(engine.store) == []
