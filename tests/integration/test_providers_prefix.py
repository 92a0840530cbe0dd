"""What the engine sends a provider again and again, as it goes over the wire: once, and the same each time."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clew.session.api import Engine
from tests.integration.prefixes import SPEAKS, calls, characters, common, opened
from tests.integration.wire_server import ANTHROPIC, WireServer, ok, refuse
from tests.integration.wire_talk import wire

__all__ = ["wire"]

SUMMARY = "\n".join(
    f"## {heading}\n- something"
    for heading in ("Goal", "Constraints & Preferences", "Progress", "Key Decisions", "Next Steps", "Critical Context")
)


async def say(engine: Engine, session_id: str, text: str) -> str:
    outcome = await (await engine.submit(session_id, text)).wait()
    assert outcome.status == "completed", outcome
    return outcome.turn_id


def tools_of(body: Any) -> list[Any]:
    """The tools of a request, whatever the wire calls their fields."""
    return [tool.get("function", tool) for tool in body["tools"]]


@pytest.mark.rule("SP-1")
@pytest.mark.parametrize("kind", SPEAKS)
async def test_a_tool_is_told_once_in_a_request_and_the_evidence_names_it(
    wire: WireServer, kind: str, tmp_path: Path
) -> None:
    """It goes as a tool, not as text of the prompt as well; what was sent is proven all the same."""
    async with opened(wire, kind, tmp_path) as (engine, session_id):
        turn_id = await say(engine, session_id, "hello")
        body, report = wire.requests[0].json, await engine.request(turn_id)
    tools = tools_of(body)
    names = [tool["name"] for tool in tools]
    assert {"bash", "edit", "grep", "read", "write"} <= set(names)
    sent = json.dumps(body, ensure_ascii=False)
    told = {tool["name"]: sent.count(json.dumps(tool["description"].split("\n")[0])[1:-1]) for tool in tools}
    assert told == dict.fromkeys(names, 1)
    assert [tool.name for tool in report.tools] == names
    assert (report.proven, report.prompt[-1].name) == (True, "tools")
    assert all(f"## {name}\n" in report.prompt[-1].text for name in names)


# The environment


def working_copy(folder: Path) -> None:
    """A git repository with nothing in it."""
    subprocess.run(["git", "init", "-q", "-b", "main", str(folder)], check=True, stdin=subprocess.DEVNULL)


def sent(body: Any) -> list[tuple[str, str]]:
    """The messages of a request on Anthropic's wire, each with all of its text."""
    return [(one["role"], "|".join(part["text"] for part in one["content"])) for one in body["messages"]]


def git_told(body: Any) -> str:
    """The line about git in a system prompt. What is not marked to be kept goes as a plain text."""
    system = body["system"]
    text = system if isinstance(system, str) else system[0]["text"]
    return str(text.partition("\nGit: ")[2].split("\n")[0])


def changed(count: str) -> str:
    return f"[The environment has changed:]\nGit: branch main, {count} changed|"


@pytest.mark.rule("SP-1", "PR-5")
async def test_the_environment_stays_as_it_was_told_and_a_turn_is_told_what_has_changed(
    wire: WireServer, tmp_path: Path
) -> None:
    """Tools and system are the same in every request, and each request begins with the one before it."""
    working_copy(tmp_path)
    async with opened(wire, "anthropic", tmp_path) as (engine, session_id):
        turns = [await say(engine, session_id, "one")]
        (tmp_path / "a").touch()
        turns.append(await say(engine, session_id, "two"))
        turns.append(await say(engine, session_id, "three"))
        (tmp_path / "a").unlink()
        turns.append(await say(engine, session_id, "four"))
        turns.append(await say(engine, session_id, "five"))
        assert [(await engine.request(turn_id)).proven for turn_id in turns] == [True] * 5
        shown = [part["text"] for message in await engine.messages(session_id) for part in message.parts[-1:]]
    bodies = [request.json for request in wire.requests]
    assert "Git: branch main, nothing changed" in bodies[0]["system"][0]["text"]
    assert [(body["tools"], body["system"]) for body in bodies] == [(bodies[0]["tools"], bodies[0]["system"])] * 5
    fine = ("assistant", "fine")
    asked = [
        ("user", "one"),
        ("user", f"{changed('1 file')}two"),
        ("user", f"{changed('1 file')}three"),
        ("user", f"{changed('nothing')}four"),
        ("user", "five"),
    ]
    assert sent(bodies[-1]) == [asked[0], fine, asked[1], fine, asked[2], fine, asked[3], fine, asked[4]]
    assert all(sent(after)[: len(sent(before))] == sent(before) for before, after in pairwise(bodies))
    assert shown == ["one", "fine", "two", "fine", "three", "fine", "four", "fine", "five", "fine"]


@pytest.mark.rule("SP-1")
async def test_a_compaction_and_another_model_tell_the_environment_anew(wire: WireServer, tmp_path: Path) -> None:
    """The provider has to read all of it again anyway."""
    working_copy(tmp_path)
    async with opened(wire, "anthropic", tmp_path) as (engine, session_id):
        await say(engine, session_id, "one " * 400)
        (tmp_path / "a").touch()
        await say(engine, session_id, "two " * 400)
        await say(engine, session_id, "three")
        await say(engine, session_id, "four")
        wire.always(*ok(), *ANTHROPIC.text(SUMMARY))
        assert (await engine.compact(session_id)).compacted
        wire.always(*ok(), *ANTHROPIC.text("fine"))
        await say(engine, session_id, "five")
        (tmp_path / "b").touch()
        await (await engine.submit(session_id, "six", model="far/other")).wait()
        await (await engine.submit(session_id, "seven", model="far/other")).wait()
    told = [git_told(request.json) for request in wire.requests]
    plain, one, two = (f"branch main, {count} changed" for count in ("nothing", "1 file", "2 files"))
    assert told == [plain, plain, plain, plain, "", one, two, two]
    last = [sent(wire.requests[n].json)[-1] for n in (3, 5, 6, 7)]
    assert last == [("user", f"{changed('1 file')}four"), ("user", "five"), ("user", "six"), ("user", "seven")]


@pytest.mark.rule("SP-1", "PR-5")
async def test_a_compaction_that_a_turn_makes_for_itself_tells_the_environment_anew(
    wire: WireServer, tmp_path: Path
) -> None:
    """In the very request it makes room for, and so in the turns after it. Nobody is asked to keep the summary's own
    request: nothing sent later begins with it."""
    working_copy(tmp_path)
    async with opened(wire, "anthropic", tmp_path, window=10_000, max_output=1_000) as (engine, session_id):
        await say(engine, session_id, "one " * 1_500)
        await say(engine, session_id, "two " * 400)
        full = ANTHROPIC.start(input_tokens=9_500), *ANTHROPIC.text_block(0, "fine"), *ANTHROPIC.stop()
        wire.reply(*ok(), *full)
        await say(engine, session_id, "three")
        (tmp_path / "a").touch()
        wire.reply(*ok(), *ANTHROPIC.text(SUMMARY))
        turns = [await say(engine, session_id, text) for text in ("four", "five")]
        assert [(await engine.request(turn_id)).proven for turn_id in turns] == [True, True]
    bodies = [request.json for request in wire.requests]
    told = [*map(git_told, bodies)]
    plain, one = "branch main, nothing changed", "branch main, 1 file changed"
    assert told == [plain, plain, plain, "", one, one]
    assert [sent(body)[-1] for body in bodies[4:]] == [("user", f"{changed('1 file')}four"), ("user", "five")]
    assert ["cache_control" in json.dumps(body) for body in bodies] == [True, True, True, False, True, True]


@pytest.mark.rule("SP-1")
async def test_after_a_turn_that_failed_right_after_its_compaction_the_environment_is_told_anew(
    wire: WireServer, tmp_path: Path
) -> None:
    """No call of that turn has told it; the next turn's prompt is as it was at the compaction, or later."""
    working_copy(tmp_path)
    (tmp_path / ".git" / "info" / "exclude").write_text("long\n")
    (tmp_path / "long").write_text("a line of it\n" * 400)
    async with opened(wire, "anthropic", tmp_path, window=10_000, max_output=1_000) as (engine, session_id):
        await say(engine, session_id, "one " * 1_500)
        call = ANTHROPIC.tool_block(0, "toolu_1", "read", json.dumps({"path": "long"}))
        wire.reply(*ok(), ANTHROPIC.start(input_tokens=9_500), *call, *ANTHROPIC.stop("tool_use"))
        wire.reply(*ok(), *ANTHROPIC.text(SUMMARY))
        wire.reply(*refuse(401, {"type": "error", "error": {"type": "test", "message": "no"}}))
        (tmp_path / "a").touch()
        outcome = await (await engine.submit(session_id, "two")).wait()
        assert outcome.status == "failed"
        assert [turn.kind for turn in (await engine.tree(session_id)).turns] == ["normal", "compaction", "normal"]
        await say(engine, session_id, "three")
    told = [git_told(request.json) for request in wire.requests]
    plain, one = "branch main, nothing changed", "branch main, 1 file changed"
    assert told == [plain, plain, "", one, one]


@pytest.mark.rule("PR-5")
@pytest.mark.parametrize("kind", SPEAKS)
async def test_over_fifty_tool_steps_in_five_turns_each_request_begins_with_the_one_before(
    wire: WireServer, kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Files change all along, on every wire; where a provider has to be told what to keep, the end of each request is
    marked, as are tools and system."""
    working_copy(tmp_path)
    (tmp_path / "lines").write_text("".join(f"this is line {n}\n" for n in range(1, 60)))
    async with opened(wire, kind, tmp_path) as (engine, session_id):
        for turn in range(5):
            for n in range(turn * 10, turn * 10 + 10):
                wire.reply(*ok(), *calls(kind, n, "read", path="lines", offset=n + 1, limit=5))
            wire.reply(*ok(), *SPEAKS[kind])
            await say(engine, session_id, f"go on {turn}")
            (tmp_path / f"new{turn}").touch()
    bodies = [request.json for request in wire.requests]
    assert len(bodies) == 55
    marked = {("cache_control" in body, str(body).count("cache_control")) for body in bodies}
    assert marked == {(True, 3) if kind == "anthropic" else (False, 0)}
    texts = [*map(characters, bodies)]
    assert all("this is line 51" in text for text in texts[-4:])
    shares = [len(common(before, after)) / len(before) for before, after in pairwise(texts)]
    record_property("figure", f"common prefix over 55 requests, {kind}: least {min(shares):.1%}")
    assert min(shares) >= 0.95
