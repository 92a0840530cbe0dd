"""What a branch costs: what the line it copies did, with the calls that came to no step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clew.session.history.check import check
from clew.testing.scripted import ScriptedModel, fail, say
from tests.acceptance.test_spend import begin, opened


@pytest.mark.rule("BR-3", "US-1")
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("jsonl", marks=pytest.mark.slow)])
async def test_a_branch_costs_what_its_parent_did_also_where_calls_broke_off(tmp_path: Path, kind: str) -> None:
    """And a branch of it; what came after the branch point is not in it."""
    script: list[Any] = [say("one"), [say("two"), fail(kind="unknown")], say("three")]
    async with opened(tmp_path, ScriptedModel(script), kind=kind) as engine:
        id_ = await begin(engine)
        sums: list[tuple[int, Any]] = []
        for text in ("first", "second", "third"):
            await (await engine.submit(id_, text)).wait()
            parent = await engine.get_session(id_)
            sums.append((parent.total_tokens, pytest.approx(parent.cost_usd)))
        *_, broke, _, last = await engine.messages(id_)
        at = [(await engine.branch(id_, message.id)) for message in (broke, last)]
        again = await engine.branch(at[1].id, (await engine.messages(at[1].id))[-1].id)
        found = [(one.total_tokens, one.cost_usd) for one in (*at, again)]
        assert found == [sums[1], sums[2], sums[2]]
        assert await check(engine.store) == []
