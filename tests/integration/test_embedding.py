"""clew as a part of another program: what it is given, and what of the user's it leaves alone."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, say, wait

pytestmark = pytest.mark.anyio

TRAPS = {
    ".config/clew/config.toml": "default_agent = 'trap'\n[providers.trap]\nbase_url = 'http://127.0.0.1:1'\n",
    ".config/clew/token": "trap",
    ".config/clew/agents/trap.md": "---\nname: trap\ndescription: A trap.\n---\nYou are a trap.\n",
    ".config/clew/skills/trap/SKILL.md": "---\nname: trap\ndescription: A trap.\n---\nA trap.\n",
    ".local/share/clew/clew.db": "not a store",
}

_watched: list[tuple[str, list[str]]] = []


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _watched and event in ("open", "os.listdir", "os.scandir", "sqlite3.connect") and args and args[0]:
        home, seen = _watched[-1]
        if event == "os.scandir" and isinstance(args[0], int):
            args = (os.readlink(f"/proc/self/fd/{args[0]}"),)
        if not isinstance(args[0], int) and str(args[0]).removeprefix("file:").startswith(home):
            seen.append(f"{event} {args[0]}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A home full of traps; what of it was looked into, as it happens. An audit hook stays for good, so it is one."""
    folder = tmp_path / "home"
    for name, text in TRAPS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.setenv("HOME", str(folder))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLEW_STORE", f"sqlite:///{folder}/trap.db")
    monkeypatch.setenv("CLEW_LIVE", "redis://127.0.0.1:1/0")
    monkeypatch.setenv("CLEW_LEASE_S", "a trap")
    if not hasattr(sys, "_clew_audited"):
        sys.addaudithook(_audit)
        sys._clew_audited = True  # type: ignore[attr-defined]
    seen: list[str] = []
    _watched.append((str(folder), seen))
    yield seen
    _watched.pop()


@clew.tool
def where(context: clew.ToolContext) -> dict[str, Any]:
    """Say where it is called."""
    known = (context.session_id, context.turn_id, context.owner, context.metadata["tenant"], context.deps)
    return {"known": list(known)}


GUIDE = clew.Agent(name="guide", description="Shows the way.", prompt="You are the guide of Acme.", tools=("where",))
MAY = clew.Rule("where", "*", "allow")


@pytest.mark.rule("EM-1", "EM-2")
async def test_a_program_brings_its_own_agents_rules_tools_and_hooks_and_its_user_s_home_is_left_alone(
    home: list[str], tmp_path: Path
) -> None:
    """A whole turn, with the lists that a page would ask for; tools and hooks know where they are."""
    model = ScriptedModel([call("where", {}), say("There.")])
    told: list[tuple[str, str, str | None, Any]] = []

    async def note(value: clew.ToolCallValue, context: clew.HookContext) -> None:
        told.append((value.tool, context.session_id, context.turn_id, context.deps))

    async def finished(outcome: clew.TurnOutcome) -> None:
        told.append((outcome.status, "", outcome.turn_id, None))

    opened = clew.open(
        f"sqlite:///{tmp_path}/app/talk.db",
        agents=[GUIDE],
        rules=[MAY],
        tools=[where],
        builtin_tools=False,
        providers={"test": model},
        hooks={"before_tool_call": note, "turn_finished": finished},
        deps="the host's own",
    )
    (tmp_path / "app").mkdir()
    async with opened as engine:
        session = await engine.create_session(workspace_root=tmp_path / "app", metadata={"tenant": "t1"})
        outcome = await (await engine.submit(session.id, "Where?")).wait()
        shown = await engine.agents()
        listed = await engine.models()
        message = (await engine.messages(session.id))[-1]
    assert [(agent.name, agent.tools) for agent in shown.agents] == [("guide", ("where",))]
    assert [line.id for line in listed] == ["test/model"]
    output = next(part["output"] for part in message.parts if part["type"] == "tool-where")
    assert output == {"known": [session.id, outcome.turn_id, None, "t1", "the host's own"]}
    assert told == [
        ("where", session.id, outcome.turn_id, "the host's own"),
        ("completed", "", outcome.turn_id, None),
    ]
    assert [schema.name for schema in model.requests[0].tools] == ["where"]
    assert home == []


@pytest.mark.rule("EM-1")
async def test_the_agent_of_a_program_does_not_say_that_it_is_clew(home: list[str], tmp_path: Path) -> None:
    """Neither its own nor the built-in one, in whatever it is told, tools included."""
    model = ScriptedModel([], otherwise=say("Yes."))
    for agents in (None, [GUIDE]):
        async with clew.open("memory:", agents=agents, tools=[where], providers={"test": model}) as engine:
            session = await engine.create_session(workspace_root=tmp_path)
            await (await engine.submit(session.id, "Who are you?")).wait()
    told = [text for request in model.requests for text in (request.system, str(request.tools))]
    assert [text for text in told if "clew" in text.lower().replace(str(tmp_path).lower(), "")] == []
    assert home == []


@pytest.mark.rule("EM-1")
async def test_who_asks_for_the_user_s_home_has_all_of_it(home: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings, the agents and the skills beside them, the variables, and the store."""
    monkeypatch.delenv("CLEW_LEASE_S")
    monkeypatch.setenv("CLEW_LIVE", "local")
    async with clew.open("memory:", config="user") as engine:
        assert (await engine.create_session(model="demo/echo")).agent == "trap"
        assert "trap" in {line.id.partition("/")[0] for line in await engine.models()}
        assert engine.config.live == "local"
    assert {name for name in ("config.toml", "agents") if any(name in line for line in home)} == {
        "config.toml",
        "agents",
    }
    monkeypatch.setenv("CLEW_STORE", "memory:")
    async with clew.open(config="user") as engine:
        assert engine.store.url == "memory:"


async def test_without_a_store_a_program_s_data_folder_has_it_and_long_outputs_too(tmp_path: Path) -> None:
    """Tools are kept out of it; beside a store that is named, the folder for outputs bears its name."""

    @clew.tool
    def much() -> str:
        """Say much."""
        return "x" * 50_000

    rules = [clew.Rule("much", "*", "allow")]
    for url, data, spill in (
        (None, tmp_path / "data", tmp_path / "data" / "spill"),
        (f"jsonl:{tmp_path}/talks", None, tmp_path / "spill-talks"),
    ):
        providers = FakeProviders(ScriptedModel([call("much", {}), say("done")]))
        async with clew.open(url, data_dir=data, tools=[much], rules=rules, providers=providers) as engine:
            session = await engine.create_session()
            await (await engine.submit(session.id, "Go")).wait()
            assert [path.parent.name for path in spill.rglob("*.txt")] == [session.id]
    assert (tmp_path / "data" / "clew.db").exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"url": None}, "name a store"),
        ({"builtin_tools": ["read", "rad"]}, "there is no built-in tool rad"),
        ({"agents": []}, "at least one of the given agents"),
        ({"agents": [GUIDE]}, "names unknown tools: where"),
        ({"agents": [clew.Agent(name="No", description="", prompt="x")]}, "needs a prompt, and a name"),
        ({"agents": [clew.Agent(name="a", description="", prompt="x")] * 2}, "have the same name"),
        (
            {"agents": [clew.Agent(name="title", description="", prompt="x")]},
            "at least one of|internal agents",
        ),
        ({"rules": [clew.Rule("read", "", "allow")]}, "pattern is missing"),
        ({"hooks": {"before_all": print}}, "there is no hook 'before_all'"),
        ({"providers": {}}, "no provider is given"),
    ],
)
async def test_what_a_program_gives_that_does_not_fit_is_refused_when_the_store_is_opened(
    given: dict[str, Any], says: str
) -> None:
    """And not in the first turn, where a user would meet it."""
    with pytest.raises(clew.InvalidInput, match=says):
        async with clew.open(**{"url": "memory:", **given}):
            pytest.fail("it was opened")


async def test_some_of_the_built_in_tools_can_be_had(tmp_path: Path) -> None:
    """By their names; an agent of the program's own is offered no others."""
    model = ScriptedModel([say("hi")])
    async with clew.open("memory:", builtin_tools=["read", "ls"], providers={"test": model}) as engine:
        session = await engine.create_session(workspace_root=tmp_path)
        await (await engine.submit(session.id, "Hello")).wait()
    assert [schema.name for schema in model.requests[0].tools] == ["ls", "read"]


async def test_rules_of_a_program_hold_for_its_agents_and_a_pinned_one_is_nobody_s_to_change() -> None:
    """An answer of a person's does not outrank it."""
    pinned = clew.Rule("where", "*", "deny", pinned=True)
    model = ScriptedModel([call("where", {}), say("no")])
    async with clew.open("memory:", agents=[GUIDE], rules=[pinned], tools=[where], providers={"test": model}) as engine:
        session = await engine.create_session(metadata={"tenant": "t"})
        await engine.set_permissions(session.id, [{"permission": "where", "pattern": "*", "action": "allow"}])
        await (await engine.submit(session.id, "Where?")).wait()
        part = (await engine.messages(session.id))[-1].parts[1]
    assert (part["state"], part["errorText"][:7]) == ("output-error", "denied:")


@pytest.mark.rule("EM-3")
async def test_a_prompt_is_refused_before_there_is_a_stream_and_else_its_stream_is_handed_out() -> None:
    """A second one while the first runs, an agent that is not there; one that is sent again is its own stream again."""
    gate = Gate()
    model = ScriptedModel([[say("One "), wait(gate), say("two.")]])
    async with clew.open("memory:", providers={"test": model}) as engine:
        session = await engine.create_session()
        with pytest.raises(clew.InvalidInput, match="unknown agent 'nobody'"):
            await engine.start(session.id, "Hello", agent="nobody")
        started = await engine.start(session.id, "Hello", message_id="mine")
        await gate.reached.wait()
        with pytest.raises(clew.SessionBusy):
            await engine.start(session.id, "Me too")
        newer = engine.attach(session.id, replay=False)
        waiting = asyncio.ensure_future(anext(aiter(newer)))
        await asyncio.sleep(0)
        gate.set()
        chunks = [chunk async for chunk in started]
        assert "".join(chunk.get("delta", "") for chunk in chunks) == "One two."
        assert (await started.wait()).turn_id == started.turn_id
        await waiting
        later = [await waiting] + [chunk async for chunk in newer]
        assert "One " not in [chunk.get("delta") for chunk in later]
        assert later[-1] == chunks[-1]
        again = await engine.start(session.id, "Hello", message_id="mine")
        assert "".join([chunk.get("delta", "") async for chunk in again]) == "One two."
        assert len(model.requests) == 1


@pytest.mark.rule("EM-2")
@pytest.mark.parametrize("name", ["message.user", "before_model_call", "before_tool_call"])
@pytest.mark.parametrize(("way", "said"), [("bytes", "returned bytes"), ("cancelled", "cancelled from inside")])
async def test_a_hook_that_gives_back_what_it_cannot_is_a_refusal_that_says_so(name: Any, way: str, said: str) -> None:
    """Not a failure inside of clew, and not the end of whoever asked; the session can be used after it."""

    async def hook(_: Any) -> Any:
        if way == "cancelled":
            raise asyncio.CancelledError
        return b"no"

    @clew.tool
    def look() -> str:
        """Look."""
        return "seen"

    model = ScriptedModel([call("look", {}), say("done")])
    rules = [clew.Rule("look", "*", "allow")]
    async with clew.open("memory:", tools=[look], rules=rules, providers={"test": model}) as engine:
        engine.hook(name, hook)
        session = await engine.create_session()
        if name == "message.user":
            with pytest.raises(clew.ClewError, match=said) as refused:
                await engine.submit(session.id, "go")
            assert refused.value.code == "refused_by_hook"
            return
        outcome = await (await engine.submit(session.id, "go")).wait()
        if name == "before_model_call":
            assert outcome.error is not None
            assert (outcome.error["code"], said in outcome.error["message"]) == ("refused_by_hook", True)
        else:
            [told] = [
                part["errorText"] for part in (await engine.messages(session.id))[-1].parts if "errorText" in part
            ]
            assert (outcome.status, said in told) == ("completed", True)
