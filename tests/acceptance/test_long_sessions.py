"""A prompt on a long session: what was read, sized and sent before is not read, sized or encoded again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

import clew
from bench.fill import add_sessions, fill_turns
from clew.compaction import budget
from clew.ids import Mint
from clew.providers import evidence
from clew.providers.base import ModelInfo, ModelRequest
from clew.session.api import Engine
from clew.store.sql import messages
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript.session import Model

_LARGE = ModelInfo(model=Model("test", "model"), window=10**8, max_output=800, summariser=Model("test", "model"))


class Counts:
    """How many parts were decoded and sized, and messages encoded, since it was looked at last."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._seen = {"decoded": 0, "sized": 0, "encoded": 0}
        self._count(patch, messages, "orjson", "decoded", SimpleNamespace(loads=orjson.loads), "loads")
        self._count(patch, evidence, "_digest", "encoded")
        self._count(patch, budget, "_sealed_chars", "sized")

    def _count(self, patch: Any, module: Any, name: str, what: str, inside: Any = None, key: str = "") -> None:
        whole = getattr(inside or module, key or name)

        def counted(*args: Any) -> Any:
            self._seen[what] += 1
            return whole(*args)

        counting: Any = counted
        if inside is not None:
            counting = SimpleNamespace(**{key: counted}, JSONDecodeError=orjson.JSONDecodeError)
        patch.setattr(module, name, counting)

    def take(self) -> dict[str, int]:
        seen = dict(self._seen)
        self._seen.update(dict.fromkeys(seen, 0))
        return seen


@asynccontextmanager
async def long_session(path: Path, model: ScriptedModel, turns: int) -> AsyncIterator[tuple[Engine, str]]:
    providers = FakeProviders(model, infos=[_LARGE])
    async with clew.open(f"sqlite:///{path}", config=clew.Config(), providers=providers) as engine:
        mint = Mint()
        session_id = await add_sessions(engine.store, mint, 1, lambda _: {"title": "long"})
        await fill_turns(engine.store, mint, session_id, range(turns))
        yield engine, session_id


async def ask(engine: Engine, session_id: str, text: str) -> None:
    async for _ in engine.run(session_id, text, model="test/model"):
        pass


async def test_a_prompt_costs_the_same_however_much_was_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted at 8 and at 80 turns, from the second prompt on: the first one reads and sizes all of it once."""
    cost: list[dict[str, int]] = []
    for turns in (8, 80):
        model = ScriptedModel(otherwise=lambda _: say("Yes."))
        async with long_session(tmp_path / f"{turns}.db", model, turns) as (engine, session_id):
            await ask(engine, session_id, "Is it?")
            with monkeypatch.context() as patch:
                counts = Counts(patch)
                await ask(engine, session_id, "And this?")
                cost.append(counts.take())
        assert [len(request.messages) for request in model.requests] == [2 * turns + 1, 2 * turns + 3]
    assert cost[0] == cost[1]
    assert min(cost[0].values()) > 0


@pytest.mark.rule("PR-5")
async def test_a_hook_that_changes_a_request_in_place_changes_no_other_one(tmp_path: Path) -> None:
    """What is kept of a session is not what is handed to a host's own code."""

    async def shout(request: ModelRequest) -> None:
        for message in request.messages:
            for part in message.parts:
                part["text"] = str(part.get("text", "")).upper()
            message.parts.append({"type": "text", "text": "!"})

    model = ScriptedModel(otherwise=lambda _: say("Yes."))
    async with long_session(tmp_path / "store.db", model, 3) as (engine, session_id):
        await ask(engine, session_id, "Is it?")
        before = await engine.messages(session_id, view="model")
        engine.hook("before_model_call", shout)
        for _ in range(2):
            await ask(engine, session_id, "And this?")
        shouted = [
            [part for part in request.messages[1].parts if part.get("text") == "!"] for request in model.requests
        ]
        assert [len(texts) for texts in shouted] == [0, 1, 1]
        assert (await engine.messages(session_id, view="model"))[: len(before)] == before
