"""The TypeScript client, as node runs it: against a real server whose connections are cut."""

from __future__ import annotations

import asyncio
import json
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.testing.scripted import Gate, call, say, wait
from tests.integration.between import between
from tests.integration.http_client import held as kept
from tests.integration.http_client import reduced, types
from tests.integration.test_client import said, scripted, without_deltas
from tests.integration.test_operations import TOKEN, serving

pytestmark = [pytest.mark.node, pytest.mark.rule("EM-5")]

NODE = Path(__file__).parents[1] / "node"


async def run_node(*words: str) -> Any:
    process = await asyncio.create_subprocess_exec("node", "client.mjs", *words, cwd=NODE, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def test_it_prompts_is_cut_off_goes_on_asks_and_is_refused(tmp_path: Path) -> None:
    """One talk: each chunk once, a prompt whose answer is lost once, an approval, a list, a file, codes."""
    async with (
        clew.open("memory:") as engine,
        serving(engine) as remote,
        between(int(remote.url.rpartition(":")[2])) as way,
    ):
        # The first three streams, shorter than they are however they come; and the first prompt's answer.
        way.limits = iter([300, 500, 700])
        way.lost.append(b"POST /api/sessions/")
        held = await run_node(way.url, TOKEN, str(tmp_path))
        assert way.cuts == 4
    held["cut"] = kept(held["cut"])
    assert said(held["cut"]) == said(held["whole"])
    assert len(said(held["cut"]).split()) == 40
    assert without_deltas(held["cut"]) == without_deltas(held["whole"])
    assert reduced(held["cut"]) == reduced(held["whole"])
    assert without_deltas(held["again"]) == []
    # Whoever comes at the very end is shown the last step without its end.
    before = [kind for kind in types(held["before"]) if kind != "finish-step"]
    assert before[-2:] == ["tool-approval-request", "finish"]
    assert ([one["tool"] for one in held["waiting"]], held["remaining"]) == (["bash"], 0)
    # Who comes back late is told first what was noted of the message meanwhile.
    after = [kind for kind in types(held["after"]) if kind != "message-metadata"]
    assert (after[0], (tmp_path / "made").exists()) == ("tool-output-available", True)
    assert held["made"] in held["listed"]
    assert "touch made" in held["exported"]
    assert held["hello"] == "hello"
    assert (held["missing"], held["stranger"]) == (["Problem", "session_not_found"], ["Problem", "unauthorized"])
    assert held["garbage"] == {
        "stream": ["BadAnswer", None],
        "gone": ["Unreachable", None],
        "kinds": ["BadAnswer", "Unreachable"],
        # Silent; headers without end; a refusal without end; a body that does not come; no HTTP; a text.
        "rude": [
            ["Unreachable", None],
            ["Unreachable", None],
            ["Problem", "http_500"],
            ["Unreachable", None],
            ["Unreachable", None],
            ["BadAnswer", None],
        ],
    }


async def test_it_is_shown_what_a_turn_went_on_with_that_is_over_by_then() -> None:
    """After a reminder, in a message of its own, before it is asked whether there is more."""
    gate = Gate()
    script = [[say("I think of a town."), wait(gate)], call("final_answer", {"name": "Graz"})]
    async with scripted(*script) as (engine, port), between(port) as way:
        talking = asyncio.ensure_future(run_node(way.url, TOKEN))
        while b"/stream" not in await way.asked.get():
            pass
        gate.set()
        held = await talking
        [session] = (await engine.list_sessions()).sessions
        messages = [message for message in await engine.messages(session.id, view="all") if message.role == "assistant"]
    assert [one["messageId"] for one in held if one["type"] == "start"] == [one.id for one in messages]
    assert (len(messages), said(held)) == (2, "I think of a town.")
    assert [one["data"] for one in held if one["type"] == "data-output"] == [{"name": "Graz"}]
