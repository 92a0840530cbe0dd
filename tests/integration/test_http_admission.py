"""From a POST to the model: what a prompt goes by is read afresh where it has changed, and little where it has not."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clew import safe_read
from clew.providers.base import ModelRequest
from clew.session.context.context import MeasuredLine, load_counted
from clew.session.history.check import check
from clew.store.sql.inbox import Inbox
from clew.store.sql.sqlite.pool import ReaderPool
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from tests.integration.http_client import served, texts, types
from tests.rig.program_002 import Program002
from tests.rounds import rounds

MANIFEST = "---\ndescription: {}\n---\nYou are {}.\n"


@pytest.fixture(params=["changed just now", "changed long ago"])
def seen_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that are read each time, and files that are kept until they change."""
    if request.param == "changed long ago":
        monkeypatch.setattr(safe_read, "_SETTLED_NS", -3_600_000_000_000)


def put(path: Path, text: str) -> None:
    """In place, and at another time than it was written last."""
    path.parent.mkdir(parents=True, exist_ok=True)
    before = path.stat().st_ctime_ns if path.exists() else 0
    path.write_text(text)
    while path.stat().st_ctime_ns == before:
        path.write_text(text)


@pytest.mark.rule("SP-1")
@pytest.mark.usefixtures("seen_as")
async def test_a_file_of_the_same_length_that_says_something_else_is_told_to_the_next_prompt(tmp_path: Path) -> None:
    """The agent's manifest, the project's instructions and the line of a skill; and one that is gone is gone."""
    files = {
        ".clew/agents/helper.md": MANIFEST,
        ".clew/skills/how/SKILL.md": "---\ndescription: {0}\n---\n{0}\n",
        "AGENTS.md": "be {}",
    }
    model = ScriptedModel(otherwise=say("yes"))
    async with served(providers=FakeProviders(model), store=f"sqlite:///{tmp_path}/s.db") as client:
        place = tmp_path / "work"
        for name, text in files.items():
            put(place / name, text.format("aaa", "aaa"))
        session_id = await client.session(agent="helper", workspace_root=str(place))
        for n, word in enumerate(("aaa", "bbb", "bbb", "ccc")):
            for name, text in files.items():
                if word not in (place / name).read_text():
                    put(place / name, text.format(word, word))
            await client.chat(session_id, "go", f"u{n}")
            told = model.requests[-1].system
            assert [told.count(f"You are {word}."), told.count(f"be {word}"), told.count(f"how: {word}")] == [1, 1, 1]
        (place / "AGENTS.md").unlink()
        (place / ".clew/skills/how/SKILL.md").unlink()
        await client.chat(session_id, "go", "u9")
        told = model.requests[-1].system
        assert ["be ccc" in told, "# Skills" in told, "You are ccc." in told] == [False, False, True]


@pytest.mark.usefixtures("seen_as")
async def test_a_rule_that_was_changed_counts_for_the_next_call(tmp_path: Path) -> None:
    """Between two calls of one turn too: in the store, and by a manifest for the next turn."""
    place = tmp_path / "work"
    put(place / "x.txt", "hello")
    put(place / ".clew/agents/helper.md", MANIFEST.format("helper", "helper"))
    script = [call("read", {"path": "x.txt"}), say("a"), call("read", {"path": "x.txt"}), say("b")]
    rule = {"permission": "read", "pattern": "*", "action": "deny"}
    async with served(*script, store=f"sqlite:///{tmp_path}/s.db") as client:
        session_id = await client.session(workspace_root=str(place))
        first = await client.chat(session_id, "go", "u1")
        assert (await client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": [rule]})).status == 200
        second = await client.chat(session_id, "go", "u2")
    ends = [[one for one in types(chunks) if one.startswith("tool-output")] for chunks in (first, second)]
    assert ends == [["tool-output-available"], ["tool-output-error"]]


@pytest.fixture
def hand_overs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """What goes to another thread and comes back: reads, units, and whatever else may block."""
    counted: Counter[str] = Counter()
    run, put, to_thread = ReaderPool._run_in, Inbox._put, asyncio.to_thread

    async def counted_run(self: ReaderPool, *args: Any, **options: Any) -> Any:
        counted["read"] += 1
        return await run(self, *args, **options)

    def counted_put(self: Inbox, *args: Any, **options: Any) -> None:
        counted["unit"] += 1
        put(self, *args, **options)

    async def counted_thread(*args: Any, **options: Any) -> Any:
        counted["thread"] += 1
        return await to_thread(*args, **options)

    monkeypatch.setattr(ReaderPool, "_run_in", counted_run)
    monkeypatch.setattr(Inbox, "_put", counted_put)
    monkeypatch.setattr(asyncio, "to_thread", counted_thread)
    return counted


@pytest.mark.parametrize("turns", [2, pytest.param(20, marks=pytest.mark.slow)])
async def test_a_prompt_is_handed_over_a_few_times_before_the_model_is_asked(
    tmp_path: Path, hand_overs: Counter[str], turns: int
) -> None:
    """However many turns came before: admission reads once what it has to know of a session without a folder."""
    asked: list[Counter[str]] = []

    class Watching(ScriptedModel):
        def stream(self, request: Any) -> Any:
            asked.append(hand_overs.copy())
            return super().stream(request)

    providers = FakeProviders(Watching(otherwise=say("yes")))
    async with served(providers=providers, store=f"sqlite:///{tmp_path}/s.db") as client:
        session_id = await client.session(title="named")
        for n in range(turns):
            await client.chat(session_id, "go", f"u{n}")
        await client.idle(session_id)
        hand_overs.clear()
        asked.clear()
        await client.chat(session_id, "go", "last")
        async with client.engine._runtime.sessions.lock(session_id):
            # Whoever has the lock next finds the run ended, and all that follows it begun.
            after = hand_overs - asked[0]
    assert (len(asked), asked[0]) == (1, Counter(read=1, unit=1))
    # How many units a stream takes is a matter of time. What the session is like after it is one read.
    assert (after["read"], after["thread"], after["unit"] <= 4) == (1, 0, True)


async def test_a_line_that_is_in_no_memory_is_read_along_with_the_session(
    tmp_path: Path, hand_overs: Counter[str]
) -> None:
    """The first prompt after a start is handed over as often as the next one: once, and once after the turn."""
    reads: list[int] = []
    url = f"sqlite:///{tmp_path}/s.db"
    async with served(say("yes"), store=url) as client:
        session_id = await client.session(title="named")
        await client.chat(session_id, "go", "u1")
    async with served(providers=FakeProviders(ScriptedModel(otherwise=say("yes"))), store=url) as client:
        await client.idle(session_id)
        for _ in range(2):
            hand_overs.clear()
            await (await client.engine.submit(session_id, "go")).wait()
            reads.append(hand_overs["read"])
            await client.idle(session_id)
    assert reads == [2, 2]


async def test_a_tool_call_is_judged_in_one_look(tmp_path: Path, hand_overs: Counter[str]) -> None:
    """The rules as they are stored then, which is one read, and plain targets by the loop; not more for more calls
    before."""
    spent: list[Counter[str]] = []

    class Watching(ScriptedModel):
        def stream(self, request: Any) -> Any:
            spent.append(hand_overs.copy())
            return super().stream(request)

    script = [*[call("todo", {"items": [{"text": str(n), "status": "pending"}]}) for n in range(3)], say("done")]
    providers = FakeProviders(Watching(script))
    async with served(providers=providers, store=f"sqlite:///{tmp_path}/s.db") as client:
        session_id = await client.session(title="named")
        chunks = await client.chat(session_id, "go")
    assert types(chunks).count("tool-output-available") == 3
    between = [after - before for before, after in pairwise(spent)]
    assert [(one["read"], one["thread"]) for one in between] == [(1, 0)] * 3


@pytest.mark.rule("ST-13")
async def test_what_another_program_writes_while_a_prompt_is_looked_at_comes_before_it(tmp_path: Path) -> None:
    """How the session stands was read already. The guards of the unit say that it is so no more: it is read again."""
    path = tmp_path / "s.db"
    async with served(say("one"), say("two"), store=f"sqlite:///{path}") as client:
        session_id = await client.session(title="named")
        await client.chat(session_id, "first", "u1")

        async def meanwhile(_: Any) -> None:
            with closing(Program002(path)) as program:
                program.say(session_id, "theirs")
                program.answer(session_id, "said")

        client.engine.hook("message.user", meanwhile)
        await client.chat(session_id, "second", "u2")
        told = [(message["role"], texts(message)) for message in await client.messages(session_id)]
        found = await check(client.engine.store)
    lines = ["user first", "assistant one", "user theirs", "assistant said", "user second", "assistant two"]
    assert (told, found) == ([tuple(line.split()) for line in lines], [])


@pytest.mark.rule("ST-14")
async def test_what_does_not_read_above_the_prompt_is_told_once_that_is_stored(tmp_path: Path) -> None:
    """What an earlier turn used is damaged: the turn fails and says so, and what somebody wrote is there."""
    async with served(*(say("yes"),) * 3, store=f"sqlite:///{tmp_path}/s.db") as client:
        session_id = await client.session()
        for n in range(2):
            await client.chat(session_id, f"prompt {n}", f"u{n}")
            await client.idle(session_id)
        turn = (await client.engine.store.load_line(session_id)).turns[0].turn
        with closing(sqlite3.connect(tmp_path / "s.db")) as other, other:
            other.execute("UPDATE turn_steps SET model_json = '{' WHERE turn_id = ?", (turn.id,))
        chunks = await client.chat(session_id, "next", "u2")
        assert types(chunks)[-2:] == ["error", "finish"]
        assert "the model of a step cannot be decoded" in chunks[-2]["errorText"]
        said = [row["parts"][0]["text"] for row in await client.messages(session_id) if row["role"] == "user"]
        assert said == ["prompt 0", "prompt 1", "next"]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, rounds(8)))])
async def test_the_line_a_prompt_begins_with_is_the_one_that_is_stored(tmp_path: Path, seed: int) -> None:
    """It was read before the prompt was stored, and is not read again: after other prompts, failures, rewinds, edits,
    compactions, prunes, a change of model, and what another program wrote."""
    path, chance, seen = tmp_path / "s.db", random.Random(seed), Counter[bool]()

    class Comparing(ScriptedModel):
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Any, None]:
            run: Any = client.engine._runtime.sessions.find_run(session_id)
            if run is not None and run._fitter._counted is not None and not run._loop.step:
                store, counted = client.engine.store, run._fitter._counted
                line = await store.find_view(session_id, keep_damaged=True)
                truth = await load_counted(store, session_id, line)
                assert truth is not None
                assert _told(counted) == _told(truth)
                seen[True] += 1
            async for chunk in super().stream(request):
                yield chunk

    providers = FakeProviders(Comparing(otherwise=say("a word")))
    async with served(providers=providers, store=f"sqlite:///{path}") as client:
        session_id = await client.session(title="named")
        for n in range(12):
            await client.chat(session_id, f"prompt {n}", f"u{n}")
            await client.idle(session_id)
            users = [one for one in await client.messages(session_id) if one["role"] == "user"]
            match chance.choice(["nothing", "rewind", "edit", "compact", "theirs", "foreign change", "agent"]):
                case "rewind" if len(users) > 1:
                    target = chance.choice(users)["id"]
                    assert (
                        await client.post(f"/api/sessions/{session_id}/rewind", {"message_id": target})
                    ).status < 300
                case "edit":
                    target = chance.choice(users)["id"]
                    await client.chat(session_id, f"edit {n}", f"e{n}", messageId=target)
                case "compact":
                    await client.post(f"/api/sessions/{session_id}/compact", {})
                case "theirs":
                    with closing(Program002(path)) as program:
                        program.say(session_id, "theirs")
                        program.answer(session_id, "said")
                case "foreign change":
                    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
                        connection.execute("UPDATE chat_parts SET updated_at = updated_at + 1")
    assert seen[True] >= 12


def _told(counted: MeasuredLine) -> Any:
    """What a line says: of its newest turn the prompt alone, as its answer may be there by now."""
    turns = [
        (
            entry.turn,
            [(row.id, row.role, row.metadata, row.created_at, [part.data for part in row.parts]) for row in rows],
        )
        for entry in counted.line.turns
        for rows in [entry.messages if entry is not counted.line.turns[-1] else entry.messages[:1]]
    ]
    return turns, counted.line.pruned, counted.line.complete, counted.steps
