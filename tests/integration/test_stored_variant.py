"""The stored model of a session shows the variant of its newest turn (issue 31; 002:18)."""

from __future__ import annotations

import asyncio
import itertools
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from clew.testing.scripted import fail, say
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.http_client import served
from tests.integration.test_http_models import BIG, asked, model_of, providers

pytestmark = pytest.mark.rule("ST-1", "MS-3")


def stored(path: Path) -> dict[str, Any]:
    with closing(sqlite3.connect(path)) as db:
        found: dict[str, Any] = json.loads(db.execute("SELECT model_json FROM chat_sessions").fetchone()[0])
        return found


async def test_other_programs_see_the_variant_of_the_newest_turn(tmp_path: Path) -> None:
    """And clew does not take it for the next one's, also after a restart, a pick of the same and a refusal."""
    path = tmp_path / "store.db"
    model, fake = providers(say("1"), say("2"), say("3"), fail(404), say("4"), say("5"))
    async with served(providers=fake, store=f"sqlite:///{path}") as client:
        session_id = await client.session()
        await client.chat(session_id, "on", model="test/big:low")
        assert (stored(path), await model_of(client, session_id)) == ({**BIG, "variant": "low"}, BIG)
    async with served(providers=fake, store=f"sqlite:///{path}") as client:
        await client.request("PATCH", f"/api/sessions/{session_id}", {"model": {**BIG, "variant": "low"}})
        picked = {**BIG, "variant": "low"}
        assert (stored(path), await model_of(client, session_id)) == (picked, picked)
        await client.chat(session_id, "on", "u2")
        assert (stored(path), await model_of(client, session_id)) == (picked, BIG)
        await client.request("PATCH", f"/api/sessions/{session_id}", {"title": "named"})
        assert stored(path) == picked
        await client.chat(session_id, "on", "u3")
        assert (stored(path), await model_of(client, session_id)) == (BIG, BIG)
        await client.chat(session_id, "on", "u4", model="test/other:high")
        assert (stored(path), await model_of(client, session_id)) == (BIG, BIG)
        await client.chat(session_id, "on", "u5", model="test/big:slow")
        await client.chat(session_id, "on", "u6")
        assert (stored(path), await model_of(client, session_id)) == (BIG, BIG)
    expected = ["test/big:low", "test/big:low", "test/big", "test/other:high", "test/big:slow", "test/big"]
    assert asked(model) == expected


def test_a_conversion_shows_it_again(tmp_path: Path, run: Run) -> None:
    """002:18 - through files and back."""

    async def fill() -> None:
        _, fake = providers(say("1"))
        async with served(providers=fake, store=f"sqlite:///{tmp_path}/a.db") as client:
            await client.chat(await client.session(), "on", model="test/big:low")

    asyncio.run(fill())
    stores = [f"sqlite:///{tmp_path}/a.db", f"jsonl:{tmp_path}/b", f"json:{tmp_path}/c", f"sqlite:///{tmp_path}/d.db"]
    for source, target in itertools.pairwise(stores):
        code, out, err = run("convert", source, target)
        assert code == 0, err or out
    assert stored(tmp_path / "d.db") == stored(tmp_path / "a.db") == {**BIG, "variant": "low"}
