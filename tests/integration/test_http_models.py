"""Which model answers, over HTTP: what a swap, a queue, a variant and a subagent come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from clew.config import CompactionConfig, Config
from clew.providers.base import ModelInfo
from clew.testing.clock import FakeClock
from clew.testing.scripted import FakeProviders, Gate, ScriptedModel, call, fail, say, wait
from clew.transcript.session import Model, read_model
from tests.integration.http_client import AsgiClient, served

BIG, SMALL = {"provider_id": "test", "model_id": "big"}, {"provider_id": "test", "model_id": "small"}
SPELT = "test/big has no variant 'hihg'; it has slow, low, high"


def providers(*script: Any) -> tuple[ScriptedModel, FakeProviders]:
    model = ScriptedModel(script)
    small = ModelInfo(model=Model("test", "small"), window=3_000, max_output=300)
    return model, FakeProviders(model, infos=[small], default="test/big")


def asked(model: ScriptedModel) -> list[str]:
    """Which models were asked, with their variants."""
    return [f"{r.model}:{r.model.variant}" if r.model.variant else str(r.model) for r in model.requests]


async def model_of(client: AsgiClient, session_id: str) -> Any:
    return (await client.get(f"/api/sessions/{session_id}")).json()["model"]


@pytest.mark.rule("MS-3", "MS-2")
async def test_a_swap_that_is_refused_leaves_the_session_on_the_model_it_had() -> None:
    """Whoever refuses it: the gate, the window, or the provider, which does not know the model or wants another key."""
    model, fake = providers(say("long " * 3_000), fail(404), fail(401), fail(kind="overflow"), say("still here"))
    config = Config(compaction=CompactionConfig(enabled=False))
    async with served(providers=fake, config=config) as client:
        session_id = await client.session()
        await client.prompt(session_id, "tell me all")
        await client.idle(session_id)
        for wrong in ("nobody/x", "test/big:hihg", "nonsense"):
            assert (await client.prompt(session_id, "on", model=wrong)).status == 422
            assert await model_of(client, session_id) == BIG
        await client.prompt(session_id, "on", model="test/small")
        assert (await client.idle(session_id))["problem"]["code"] == "context_too_large"
        assert await model_of(client, session_id) == BIG
        for _ in range(3):
            await client.prompt(session_id, "on", model="test/other")
            assert (await client.idle(session_id))["state"] == "error"
            assert await model_of(client, session_id) == BIG
        await client.prompt(session_id, "on")
        assert await client.idle(session_id) == {"state": "idle"}
        assert asked(model) == ["test/big", *["test/other"] * 3, "test/big"]


@pytest.mark.rule("MS-3", "MS-2")
async def test_a_swap_that_is_stopped_while_room_is_made_for_it_has_not_happened() -> None:
    """Until the conversation fits, the session is on the model it had, whatever ends the attempt."""
    gate = Gate()
    model, fake = providers(*[say("word " * 600)] * 8, [wait(gate), say("a summary")], say("on"))
    async with served(providers=fake) as client:
        session_id = await client.session()
        for _ in range(8):
            await client.prompt(session_id, "tell me all")
            await client.idle(session_id)
        await client.prompt(session_id, "on", model="test/small")
        await gate.reached.wait()
        assert await model_of(client, session_id) == BIG
        await client.post(f"/api/sessions/{session_id}/abort")
        await client.idle(session_id)
        await client.prompt(session_id, "on")
        assert await client.idle(session_id) == {"state": "idle"}
        assert (asked(model)[-1], await model_of(client, session_id)) == ("test/big", BIG)


@pytest.mark.rule("MS-3")
async def test_a_model_that_failed_in_passing_stays_picked() -> None:
    """Nobody refused it: the next prompt tries it again."""
    model, fake = providers(*[fail(kind="unknown")] * 2)
    async with served(providers=fake) as client:
        session_id = await client.session()
        for options in ({"model": "test/other"}, {}):
            await client.prompt(session_id, "on", **options)
            await client.idle(session_id)
        assert (asked(model), (await model_of(client, session_id))["model_id"]) == (["test/other"] * 2, "other")


@pytest.mark.rule("MS-3", "MS-1")
async def test_a_queued_prompt_without_a_model_runs_on_the_newest_one_picked_before_it() -> None:
    """By a prompt before it in the queue, or by a patch; the message names the model once it is known."""
    gate = Gate()
    model, fake = providers([wait(gate), say("0")], *map(say, "1234"))
    async with served(providers=fake) as client:
        session_id = await client.session()
        await client.prompt(session_id, "zero")
        await gate.reached.wait()
        queued: list[dict[str, Any]] = [{}, {"model": "test/other:high"}, {}]
        for number, options in enumerate(queued, start=1):
            assert (await client.prompt(session_id, str(number), **options)).json()["queued"] is True
        waiting = (await client.get(f"/api/sessions/{session_id}/queue")).json()["messages"]
        assert [message["metadata"].get("model", {}).get("model_id") for message in waiting] == [None, "other", None]
        patched = await client.request("PATCH", f"/api/sessions/{session_id}", {"model": "test/picked:low"})
        assert patched.json()["model"] == {"provider_id": "test", "model_id": "picked", "variant": "low"}
        gate.set()
        while (await client.idle(session_id), len(model.requests))[1] < 4:
            pass
        names = ["test/big", "test/picked:low", "test/other:high", "test/other"]
        assert asked(model) == names
        messages = await client.messages(session_id)
        assert [m["metadata"]["model"]["model_id"] for m in messages if m["role"] == "user"] == [
            name.partition("/")[2].partition(":")[0] for name in names
        ]
        assert await model_of(client, session_id) == {"provider_id": "test", "model_id": "other"}


@pytest.mark.rule("MS-3")
async def test_a_variant_picked_for_a_session_is_for_its_next_turn() -> None:
    """Given when it is made, when it is changed or with a branch; named in one word or in parts."""
    model, fake = providers(*map(say, "123456"))
    async with served(providers=fake) as client:
        session_id = await client.session(model="test/big:high")
        for _ in range(2):
            await client.prompt(session_id, "on")
            await client.idle(session_id)
        await client.request("PATCH", f"/api/sessions/{session_id}", {"model": {**BIG, "variant": "slow"}})
        await client.chat(session_id, "on", model="test/big:low")
        await client.chat(session_id, "on", "u2")
        last = (await client.messages(session_id))[-1]["id"]
        body = {"from_message_id": last, "model": "test/big:low"}
        branch = (await client.post(f"/api/sessions/{session_id}/branch", body)).json()["id"]
        for _ in range(2):
            await client.prompt(branch, "on")
            await client.idle(branch)
        assert asked(model) == ["test/big:high", "test/big", "test/big:low", "test/big", "test/big:low", "test/big"]


@pytest.mark.rule("MS-3")
async def test_a_misspelt_variant_is_refused_with_those_the_model_has_wherever_it_is_named() -> None:
    """Made, prompted, chatted, changed, branched, measured, edited or sent by itself."""
    _, fake = providers(say("1"))
    async with served(providers=fake) as client:
        session_id = await client.session()
        await client.chat(session_id, "hi")
        user, last = [message["id"] for message in await client.messages(session_id)]
        at, wrong = f"/api/sessions/{session_id}", {"model": "test/big:hihg"}
        chat = {"id": session_id, "trigger": "submit-message", **wrong}
        again = {**chat, "trigger": "regenerate-message", "messages": []}
        new = {"id": "u2", "role": "user", "parts": [{"type": "text", "text": "x"}]}
        edited = {"message_id": user, "mode": "edit", "text": "x", "run": True}
        answers = [
            await client.post("/api/sessions", wrong),
            await client.post("/api/sessions", {"model": {**BIG, "variant": "hihg"}}),
            await client.post(f"{at}/prompt", {"text": "x", **wrong}),
            await client.post("/api/chat", {**chat, "messages": [new]}),
            await client.post("/api/chat", again),
            await client.request("PATCH", at, wrong),
            await client.post(f"{at}/branch", {"from_message_id": last, **wrong}),
            await client.post(f"{at}/rewind", {**edited, **wrong}),
            await client.get(f"{at}/context?model=test/big:hihg"),
            await client.post("/api/schedules", {"cron": "* * * * *", "prompt": "x", **wrong}),
            await client.post("/api/hooks", {"name": "door", **wrong}),
            await client.post(
                "/api/events", {"source": "s", "source_id": "1", "text": "x", "routing": {"key": "k"}, **wrong}
            ),
        ]
        told = [(answer.status, answer.code, answer.json()["detail"]) for answer in answers]
        assert told == [(422, "unknown_variant", SPELT)] * len(answers)
        assert len(await client.messages(session_id)) == 2


@pytest.mark.rule("MS-3", "MS-1")
async def test_an_agent_runs_on_its_manifests_model_in_its_variant(tmp_path: Path) -> None:
    """As a session's agent in every turn, and as a subagent whatever its parent runs on; a misspelt one is told."""
    folder = tmp_path / ".clew" / "agents"
    folder.mkdir(parents=True)
    for name, mode, line in (
        ("hard", "primary", "big:high"),
        ("scout", "subagent", "other:low"),
        ("bad", "subagent", "big:hihg"),
    ):
        text = f"---\ndescription: {name}\nmode: {mode}\nmodel: test/{line}\n---\nYou are {name}."
        (folder / f"{name}.md").write_text(text)
    tasks = [
        [
            call("task", {"prompt": "look", "agent": name}),
        ]
        for name in ("scout", "bad")
    ]
    model, fake = providers(say("1"), tasks[0], say("seen"), tasks[1], say("done"), say("3"))
    async with served(providers=fake) as client:
        session_id = await client.session(workspace_root=str(tmp_path), agent="hard")
        rule = {"permission": "task", "pattern": "*", "action": "allow"}
        await client.request("PUT", f"/api/sessions/{session_id}/permissions", {"rules": [rule]})
        for options in ({}, {"model": "test/swap"}, {"model": "test/big"}):
            await client.prompt(session_id, "on", **options)
            await client.idle(session_id)
        assert asked(model) == ["test/big:high", "test/swap", "test/other:low", "test/swap", "test/swap", "test/big"]
        parts = (await client.messages(session_id))[-3]["parts"]
        assert SPELT in str([part.get("errorText") for part in parts])
        refused = await client.post("/api/sessions", {"workspace_root": str(tmp_path), "agent": "bad"})
        assert (refused.status, refused.code) == (422, "unknown_variant")
        agents = (await client.get(f"/api/agents?workspace={tmp_path}")).json()
        assert [notice for notice in agents["notices"] if SPELT in notice]


@pytest.mark.rule("MS-3", "RN-8")
async def test_a_turn_that_goes_on_is_answered_by_the_model_that_was_picked_since() -> None:
    """Where nothing was picked since, one that was to swap the session's model still does."""
    model, fake = providers(fail(400), say("one"), say("two"), fail(400), say("three"), say("four"))
    async with served(providers=fake) as client:
        session_id = await client.session()
        path = f"/api/sessions/{session_id}"
        await client.prompt(session_id, "hello")
        assert (await client.idle(session_id))["state"] == "error"
        assert (await client.request("PATCH", path, {"model": "test/good"})).status == 200
        assert (await client.post(f"{path}/continue", {})).status == 202
        assert (await client.idle(session_id))["state"] == "idle"
        assert await model_of(client, session_id) == {"provider_id": "test", "model_id": "good"}
        await client.prompt(session_id, "again")
        await client.idle(session_id)
        await client.prompt(session_id, "swap", model="test/other")
        assert (await client.idle(session_id))["state"] == "error"
        assert (await client.post(f"{path}/continue", {})).status == 202
        await client.idle(session_id)
        await client.prompt(session_id, "on")
        await client.idle(session_id)
        assert asked(model) == ["test/big", "test/good", "test/good", *["test/other"] * 3]


@pytest.mark.rule("MS-3", "RN-8")
@pytest.mark.parametrize("way", ["patch", "branch", "variant", "again", "named before", "picked back", "waits"])
async def test_a_model_that_was_picked_answers_until_the_next_one_is(way: str) -> None:
    """`patch_session(model=B)` or `branch(model=B)`, then going on: B answers, and the session stays with it, whatever
    model the prompt had named before; the next prompt that names one has that."""
    clock = FakeClock()
    first = call("question", {"question": "Which?"}) if way == "waits" else fail(400)
    model, fake = providers(first, fail(400), say("on"), say("next"), say("named"))
    async with served(providers=fake, clock=clock) as client:
        session_id = await client.session()
        named = {"model": "test/other"} if way in ("named before", "picked back") else {}
        await client.prompt(session_id, "hello", **named)
        await client.idle(session_id)
        wanted = "test/good:low" if way == "variant" else "test/big" if way == "picked back" else "test/good"
        if way == "branch":
            asked_id = (await client.messages(session_id))[0]["id"]
            answer = await client.post(
                f"/api/sessions/{session_id}/branch", {"from_message_id": asked_id, "model": wanted}
            )
            session_id = answer.json()["id"]
        else:
            assert (await client.request("PATCH", f"/api/sessions/{session_id}", {"model": wanted})).status == 200
        path = f"/api/sessions/{session_id}"
        if way == "waits":
            call_id = (await client.get(f"{path}/status")).json()["waiting"][0]["tool_call_id"]
            assert (await client.post(f"{path}/answers/{call_id}", {"output": "this"})).status == 200
            await client.idle(session_id)
        # It fails once more: what was picked is picked still, and a variant is for the turn that it has not had yet.
        for _ in range(1 if way == "waits" else 2):
            mode = {"mode": "again"} if way == "again" else {}
            assert (await client.post(f"{path}/continue", mode)).status == 202
            await client.idle(session_id)
        plain = wanted.partition(":")[0]
        await client.prompt(session_id, "next")
        await client.idle(session_id)
        assert await model_of(client, session_id) == msgspec.to_builtins(read_model(plain))
        await client.prompt(session_id, "named", model="test/other")
        await client.idle(session_id)
        assert asked(model)[1:] == [wanted, wanted, plain, "test/other"]


@pytest.mark.rule("MS-3", "RN-8")
@pytest.mark.parametrize("named", [{"model": "test/other"}, {}], ids=["named before", "not named"])
@pytest.mark.parametrize("given", [{}, {"model": "test/third"}], ids=["kept", "named again"])
async def test_an_edit_is_answered_by_the_model_that_was_picked_since(
    named: dict[str, Any], given: dict[str, Any]
) -> None:
    """As a continued turn is; an edit that names a model has that."""
    model, fake = providers(say("first"), say("edited"))
    async with served(providers=fake) as client:
        session_id = await client.session()
        await client.prompt(session_id, "hello", **named)
        await client.idle(session_id)
        path = f"/api/sessions/{session_id}"
        assert (await client.request("PATCH", path, {"model": "test/good"})).status == 200
        edit = {"message_id": (await client.messages(session_id))[0]["id"], "mode": "edit", "text": "bye", "run": True}
        assert (await client.post(f"{path}/rewind", {**edit, **given})).status == 202
        await client.idle(session_id)
        wanted = given.get("model", "test/good")
        assert asked(model)[1:] == [wanted]
        assert await model_of(client, session_id) == msgspec.to_builtins(read_model(wanted))
