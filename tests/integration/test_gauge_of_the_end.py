"""The gauge of a long session, read off the end of its line, is what the whole of it says."""

from __future__ import annotations

import random
from typing import Any

import pytest

from clew.compaction.context import ContextReport, report
from clew.session.api import Engine
from clew.session.context import context as runtime_context
from clew.session.context.context import load_idle_context
from clew.store.base import get_session
from clew.testing.scripted import FakeProviders, ScriptedModel, say, then
from clew.transcript.usage import Usage
from tests.integration.http_client import AsgiClient, served
from tests.integration.http_history import talked


class Talker:
    """Answers for ever."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    async def stream(self, request: Any) -> Any:
        chars = sum(len(str(message.parts)) for message in request.messages)
        words = say("word " * self.rng.randint(1, 400))
        async for item in ScriptedModel([then(words, usage=Usage(input=chars // 3, output=20))]).stream(request):
            yield item

    async def close(self) -> None: ...


async def whole(engine: Engine, session_id: str, model: str | None) -> ContextReport:
    session = await get_session(engine.store, session_id)
    return report(await load_idle_context(engine.host, session, model))


async def held_against_the_whole(client: AsgiClient, session_id: str, model: str | None = None) -> None:
    """All but how the parts share in the count is the same; that is by what the last step was sent, near enough."""
    gauge = await client.engine.context(session_id, model=model)
    truth = await whole(client.engine, session_id, model)
    plain = ("limit", "reserve", "threshold", "used", "measured")
    assert [getattr(gauge, name) for name in plain] == [getattr(truth, name) for name in plain]
    for name in ("system", "tools", "summary", "history", "pruned"):
        near = 2 + truth.used * 0.02
        assert abs(getattr(gauge.parts, name) - getattr(truth.parts, name)) <= near, (name, gauge, truth)
    assert sum(getattr(gauge.parts, name) for name in ("system", "tools", "summary", "history")) == gauge.used


@pytest.mark.slow
@pytest.mark.rule("US-3", "ST-15")
@pytest.mark.parametrize("seed", range(2))
async def test_the_gauge_of_a_long_session_is_that_of_all_of_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After turns, rewinds, summaries, prunes, swaps of the model and in branches; most of them by the end alone."""
    rng = random.Random(seed)
    by_end: list[bool] = []
    recent = runtime_context._recent_report

    async def noted(*args: Any) -> ContextReport | None:
        found = await recent(*args)
        by_end.append(found is not None)
        return found

    monkeypatch.setattr(runtime_context, "_recent_report", noted)
    async with served(providers=FakeProviders(Talker(rng))) as client:
        session_id, _ = await talked(client, *(f"prompt {n}" for n in range(10)))
        for n in range(12):
            await held_against_the_whole(client, session_id)
            path = f"/api/sessions/{session_id}"
            users = [one for one in await client.messages(session_id) if one["role"] == "user"]
            match rng.choice(["say", "say", "say", "rewind", "compact", "branch", "swap"]):
                case "rewind":
                    target = rng.choice(users[-4:])["id"]
                    await client.post(f"{path}/rewind", {"message_id": target, "mode": rng.choice(["edit", "resend"])})
                case "compact":
                    await client.post(f"{path}/compact")
                case "branch":
                    made = await client.post(f"{path}/branch", {"from_message_id": users[-1]["id"]})
                    session_id = made.json()["id"]
                case "swap":
                    await held_against_the_whole(client, session_id, "test/other")
                case _:
                    pass
            await held_against_the_whole(client, session_id)
            await client.prompt(session_id, f"more {n}")
            await client.idle(session_id)
    assert sum(by_end) > len(by_end) // 3
