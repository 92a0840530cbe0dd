"""A session whose agent or model another program or machine knew, and this one does not."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import InvalidInput
from clew.session.history.check import check
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.http_client import served
from tests.integration.test_other_programs import opened, told
from tests.rig.program_002 import Program002, make_plain

pytestmark = pytest.mark.rule("ST-16")

_ACME = {"provider_id": "acme", "model_id": "large-1"}
_HERE = {"provider_id": "test", "model_id": "model"}


def foreign_session(path: Path, *, agent: str = "assistant", model: dict[str, Any] | None = None) -> str:
    """Make a session of the other program, with one exchange in it."""
    if not path.exists():
        make_plain(path)
    with closing(Program002(path)) as program:
        session_id = program.open_session(agent=agent)
        program.say(session_id, "hello")
        program.answer(session_id, "there")
        if model is not None:
            program.execute("UPDATE chat_sessions SET model_json = ? WHERE id = ?", json.dumps(model), session_id)
    return session_id


@pytest.mark.parametrize(
    ("agent", "model", "named"),
    [
        ("planner", None, {"agent": "planner"}),
        ("title", None, {"agent": "title"}),  # clew's own worker, which no session may have
        ("assistant", _ACME, {"model": "acme/large-1"}),
        ("assistant", {**_HERE, "variant": "huge"}, {"model": "test/model"}),
        ("planner", {**_ACME, "variant": "high"}, {"agent": "planner", "model": "acme/large-1"}),
    ],
)
async def test_the_default_answers_and_the_answer_says_for_whom(
    tmp_path: Path, agent: str, model: dict[str, Any] | None, named: dict[str, str]
) -> None:
    """Continued over HTTP; the session keeps its agent's name and notes the model it had."""
    path = tmp_path / "shared.db"
    session_id = foreign_session(path, agent=agent, model=model)
    answers = ScriptedModel(otherwise=lambda request: say(f"re {request.messages[-1].parts[0]['text']}"))
    async with served(store=f"sqlite:///{path}", providers=FakeProviders(answers)) as client:
        assert (await client.get(f"/api/sessions/{session_id}/context")).status == 200
        start = (await client.chat(session_id, "more"))[0]
        assert start["messageMetadata"]["fallback_for"] == named
        shown = (await client.messages(session_id))[-1]["metadata"]
        assert (shown["fallback_for"], shown["model"], shown.get("agent")) == (
            named,
            _HERE,
            "assistant" if "agent" in named else None,
        )
        session = (await client.get(f"/api/sessions/{session_id}")).json()
        assert (session["agent"], session["metadata"].get("model_was")) == (agent, named.get("model"))
        assert session["model"] == _HERE
        assert await check(client.engine.store) == []


@pytest.mark.parametrize("how", ["continue", "edit", "branch", "queue", "compact", "rules", "explain"])
async def test_everything_works_that_works_on_other_sessions(tmp_path: Path, how: str) -> None:
    """Whatever resolves who answers finds somebody."""
    path = tmp_path / "shared.db"
    session_id = foreign_session(path, agent="planner", model=_ACME)
    with closing(Program002(path)) as program:
        program.say(
            session_id, "to planner", "m-9", agent="reviewer", model={"provider_id": "nowhere", "model_id": "x"}
        )
    async with opened(path) as engine:
        match how:
            case "continue":
                await (await engine.continue_turn(session_id)).wait()
            case "edit":
                await engine.rewind(session_id, "m-9")
                await (await engine.submit(session_id, "else")).wait()
            case "branch":
                session_id = (await engine.branch(session_id, "m-9")).id
                await (await engine.submit(session_id, "else")).wait()
            case "queue":
                first, second = await engine.submit(session_id, "one"), await engine.submit(session_id, "two")
                await asyncio.gather(first.wait(), second.wait())
            case "compact":
                assert (await engine.compact(session_id)).compacted is False
            case "rules":
                assert await engine.rules(session_id=session_id) != []
            case "explain":
                await engine.explain_permission(session_id, "bash", "ls")
        if how not in ("compact", "rules", "explain"):
            [*_, last] = await engine.messages(session_id)
            assert (last.role, last.parts[-1]["type"], last.metadata["fallback_for"]["agent"]) == (
                "assistant",
                "text",
                "reviewer" if how == "continue" else "planner",
            )
        assert (await engine.get_session(session_id)).agent == "planner"


async def test_a_new_prompt_that_names_what_is_unknown_is_refused(tmp_path: Path) -> None:
    """Nothing is replaced that a person asks for now."""
    path = tmp_path / "shared.db"
    session_id = foreign_session(path, agent="planner", model=_ACME)
    async with opened(path) as engine:
        with pytest.raises(InvalidInput, match="unknown agent 'planner'"):
            await engine.submit(session_id, "more", agent="planner")
        with pytest.raises(InvalidInput, match="acme"):
            await engine.submit(session_id, "more", model="acme/large-1")
        assert await told(engine, session_id) == ["user: hello", "assistant: there"]


async def test_the_agent_answers_again_once_it_is_there(tmp_path: Path) -> None:
    """The name was kept, so nothing has to be done."""
    path, folder = tmp_path / "shared.db", tmp_path / "work"
    session_id = foreign_session(path, agent="planner")
    with closing(Program002(path)) as program:
        program.execute("UPDATE chat_sessions SET workspace_root = ?", str(folder))
    (folder / ".clew" / "agents").mkdir(parents=True)
    async with opened(path) as engine:
        await (await engine.submit(session_id, "one")).wait()
        manifest = "---\nname: planner\ndescription: plans\n---\nYou plan.\n"
        (folder / ".clew" / "agents" / "planner.md").write_text(manifest)
        await (await engine.submit(session_id, "two")).wait()
        shown = [message.metadata for message in await engine.messages(session_id) if message.role == "assistant"]
    assert [one.get("fallback_for") for one in shown] == [None, {"agent": "planner"}, None]
    assert [one.get("agent") for one in shown] == [None, "assistant", None]


def test_the_command_line_says_who_answers(tmp_path: Path, run: Run) -> None:
    """At once, and whenever the session is shown."""
    path = tmp_path / "shared.db"
    session_id = foreign_session(path, agent="planner", model=_ACME)
    note = (
        "the agent planner is unknown here; assistant answered; "
        "the model acme/large-1 is unknown here; demo/tour answered"
    )
    code, _, err = run("run", "--session", session_id, "more", "--store", f"sqlite:///{path}")
    assert (code, f"clew: {note}\n" in err) == (0, True)
    code, out, _ = run("show", session_id, "--store", f"sqlite:///{path}")
    assert (code, note in out) == (0, True)


@pytest.mark.parametrize("kind", ["jsonl", "json"])
async def test_folders_of_files_too(tmp_path: Path, kind: str) -> None:
    """A model without a provider, and an agent of the other program."""
    model = ScriptedModel(otherwise=lambda request: say("yes"))
    config = clew.Config()
    store = f"{kind}:{tmp_path}/files"
    metadata = {"workerId": "w", "workspaceId": "w"}
    known = FakeProviders({"acme": model, "test": model})
    async with clew.open(
        store, providers=known, config=config, agents=[_agent("planner"), _agent("assistant")]
    ) as engine:
        session = await engine.create_session(agent="planner", model="acme/large-1", metadata=metadata)
        await (await engine.submit(session.id, "hello")).wait()
    async with clew.open(store, providers=FakeProviders(model), config=config) as engine:
        await (await engine.submit(session.id, "more")).wait()
        [*_, last] = await engine.messages(session.id)
        assert last.metadata["fallback_for"] == {"agent": "planner", "model": "acme/large-1"}
        assert (await engine.get_session(session.id)).agent == "planner"
        assert await check(engine.store) == []


def _agent(name: str) -> clew.Agent:
    return clew.Agent(name=name, description="helps", prompt="You help.")
