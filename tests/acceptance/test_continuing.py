"""Going on from places that a conversation has left: nothing that follows a turn is changed by it."""

from __future__ import annotations

from pathlib import Path

import pytest

import clew
from clew.errors import NothingToContinue
from clew.testing.scripted import call, fail, say
from tests.acceptance.compacting import summary
from tests.acceptance.errands import brief_agent

from .conftest import Open


@pytest.mark.rule("RW-2")
async def test_an_unanswered_turn_that_was_gone_on_from_is_answered_beside_it(open_scenario: Open) -> None:
    """The prompt below it was said to an unanswered message, and stays so."""
    async with open_scenario([say("one"), say("two"), say("three")]) as s:
        await s.begin()
        await s.prompt("first")
        [message] = [m for m in await s.engine.messages(s.id) if m.role == "user"]
        resent = (await s.engine.rewind(s.id, message.id)).head_turn_id
        await s.prompt("below")
        later = (await s.engine.get_session(s.id)).head_turn_id
        await s.engine.set_head(s.id, resent)
        await (await s.engine.continue_turn(s.id)).wait()
        assert await s.transcript() == ["user: first", "assistant: three"]
        await s.engine.set_head(s.id, later)
        assert await s.transcript() == ["user: first", "user: below", "assistant: two"]
        assert await s.check() == []


async def test_a_turn_at_its_step_limit_that_was_gone_on_from_takes_a_prompt(
    open_scenario: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows was said to it as it is, so nothing may be added to it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    @clew.tool
    async def poke(n: int) -> str:
        """Poke."""
        return "ok"

    script = [call("poke", {"n": n}) for n in range(10)]
    async with open_scenario(script, tools=[poke], config_dir=tmp_path / "clew") as s:
        await s.begin(agent=brief_agent(tmp_path))
        await s.engine.set_permissions(s.id, [{"permission": "poke", "pattern": "*", "action": "allow"}])
        await s.prompt("poke")
        limited = (await s.engine.get_session(s.id)).head_turn_id
        s.model.add(say("later"), say("and done"))
        await s.prompt("below")
        await s.engine.set_head(s.id, limited)
        with pytest.raises(NothingToContinue):
            await s.engine.continue_turn(s.id)
        await s.prompt("go on")
        assert (await s.transcript())[-2:] == ["user: go on", "assistant: and done"]
        assert await s.check() == []


@pytest.mark.rule("RN-8", "SR-4")
@pytest.mark.parametrize("url", ["sqlite", "jsonl"])
async def test_a_resumed_turn_that_waits_for_an_approval_survives_a_restart(
    open_scenario: Open, tmp_path: Path, url: str
) -> None:
    """The turn is the head and open at once; recovery leaves it waiting, and the answer continues it."""

    @clew.tool
    async def poke() -> str:
        """Poke."""
        return "ok"

    store = f"sqlite:///{tmp_path}/again.db" if url == "sqlite" else f"jsonl:{tmp_path}/again"
    async with open_scenario([fail(418), call("poke", {})], tools=[poke], url=store) as s:
        await s.begin()
        await s.prompt("poke")
        session_id, failed = s.id, (await s.engine.get_session(s.id)).head_turn_id
        await s.engine.continue_turn(s.id)
        await s.settled()
        before = (await s.engine.get_status(s.id)).waiting
    async with open_scenario([say("done"), say("below")], tools=[poke], url=store) as s:
        status = await s.engine.get_status(session_id)
        assert (status.state, status.waiting) == ("idle", before)
        await s.engine.answer(session_id, str(before[0].approval_id), "once")
        async for _ in s.engine.attach(session_id):
            pass
        assert (await s.engine.get_session(session_id)).head_turn_id == failed
        await (await s.engine.submit(session_id, "and on")).wait()
        said = [(one.role, one.parts[-1].get("text")) for one in await s.engine.messages(session_id)]
        assert said[-3:] == [("assistant", "done"), ("user", "and on"), ("assistant", "below")]
        assert await s.check() == []


async def test_a_failed_turn_is_asked_again_after_a_compaction_by_hand(open_scenario: Open) -> None:
    """The compaction stands behind the turn, which so cannot go on; asking again goes back before both."""
    script = [say("one " * 300), say("two " * 300), fail(400)]
    async with open_scenario(script) as s:
        await s.begin()
        await s.prompt("first " * 100)
        await s.prompt("second " * 100)
        await s.prompt("third")
        s.model.add(say(summary("count")), say("at last"))
        assert (await s.engine.compact(s.id)).compacted
        with pytest.raises(NothingToContinue):
            await s.engine.continue_turn(s.id)
        await (await s.engine.continue_turn(s.id, mode="again")).wait()
        assert (await s.transcript())[-2:] == ["user: third", "assistant: at last"]
        with pytest.raises(NothingToContinue):
            await s.engine.continue_turn(s.id)
        assert await s.check() == []


@pytest.mark.parametrize("status", [401, 418])
@pytest.mark.parametrize("picks", ["patch", "patch back", "branch", "again"])
async def test_a_model_picked_after_a_failed_turn_answers_when_it_is_continued(
    open_scenario: Open, picks: str, status: int
) -> None:
    """An explicit choice wins until the next one: also the model that the session had before the prompt named one."""
    async with open_scenario([fail(status), say("at last")]) as s:
        await s.begin()
        first = str((await s.engine.get_session(s.id)).model)
        named = f"{first.split('/')[0]}/named"
        picked = first if picks == "patch back" else f"{first.split('/')[0]}/picked"
        await (await s.engine.submit(s.id, "hello", model=named)).wait()
        session_id = s.id
        if picks == "branch":
            newest = (await s.engine.messages(s.id))[-1].id
            session_id = (await s.engine.branch(s.id, newest, model=picked)).id
        else:
            await s.engine.patch_session(s.id, model=picked)
        await (await s.engine.continue_turn(session_id, mode="again" if picks == "again" else "on")).wait()
        answer = (await s.engine.messages(session_id))[-1]
        shown = str((await s.engine.get_session(session_id)).model)
        model = dict(zip(("provider_id", "model_id"), picked.split("/"), strict=True))
        assert (answer.metadata["model"], shown) == (model, picked)


async def test_a_model_named_by_a_failed_prompt_still_answers_when_it_is_continued(open_scenario: Open) -> None:
    """Nothing was picked since: the provider's refusal is not a choice."""
    async with open_scenario([fail(401), say("at last")]) as s:
        await s.begin()
        provider = (await s.engine.get_session(s.id)).model.provider_id
        await (await s.engine.submit(s.id, "hello", model=f"{provider}/named")).wait()
        await (await s.engine.continue_turn(s.id)).wait()
        assert str((await s.engine.get_session(s.id)).model) == f"{provider}/named"


async def test_the_outcome_of_a_failed_turn_is_the_same_whenever_it_is_asked_for(open_scenario: Open) -> None:
    """A client that sends its prompt again is given the outcome of the turn it began, error included."""
    async with open_scenario([fail(400)]) as s:
        await s.begin()
        first = await (await s.engine.submit(s.id, "hello", message_id="c1")).wait()
        again = await (await s.engine.submit(s.id, "hello", message_id="c1")).wait()
        assert first.error is not None
        assert again == first
