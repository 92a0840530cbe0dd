"""Sessions as Claude Code and pi keep theirs, by ``clew export --format``; and back again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from tests.integration.command_line import Run, run
from tests.integration.moved_in import PROGRAMS, exported, told
from tests.integration.test_moving_in import taken

__all__ = ["run"]

NAMES = frozenset(
    {"uuid", "parentUuid", "logicalParentUuid", "leafUuid", "messageId", "preservedSegment", "preservedMessages"}
    | {"id", "ids", "parentId", "targetId", "fromId"}
)


def come_back(run: Run, tmp_path: Path, program: str, session: str) -> dict[str, Any]:
    """Out as a file of a program, and into another store."""
    file, store = tmp_path / f"out.{program}.jsonl", f"sqlite:///{tmp_path}/{program}.db"
    code, _, err = run("export", session, "--format", program, "--keep-secrets", "--out", str(file))
    assert code == 0, err
    came = taken(run, program, file, "--store", store)
    code, out, err = run("export", came["session_id"], "--keep-secrets", "--store", store)
    assert (code, err) == (0, "")
    return told(json.loads(out))


def nameless(value: Any, within: bool = False) -> Any:
    """The same without the names of lines in what was kept: they are new in a new file."""
    if isinstance(value, dict):
        inside = within or value.get("type") == "data-kept"
        return {key: nameless(item, inside) for key, item in value.items() if not (within and key in NAMES)}
    return [nameless(item, within) for item in value] if isinstance(value, list) else value


@pytest.mark.rule("IO-2")
@pytest.mark.parametrize("path", ["claude-code/2.1", "claude-code/1.0", "pi/3"])
def test_what_came_from_a_program_goes_back_to_it_and_comes_again_the_same(run: Run, tmp_path: Path, path: str) -> None:
    """All of it: branches, summaries, calls, thoughts with their signatures, usage, and what had no place here."""
    program = path.partition("/")[0]
    session = taken(run, program, PROGRAMS / path)["session_id"]
    before = told(exported(run, session))
    assert nameless(come_back(run, tmp_path, program, session)) == nameless(before)


def both(whole: dict[str, Any]) -> list[Any]:
    """What every program has a place for: the tree, who said what, calls, results, files and what it used."""
    rows = {row["id"]: row for row in whole["messages"]}

    def said(row: dict[str, Any]) -> Any:
        parts = []
        for part in row["parts"]:
            if "toolCallId" in part:
                result = part.get("output", part.get("errorText"))
                parts.append([part["type"], part["toolCallId"], part["input"], part["state"], result])
            elif part["type"] in ("text", "file"):
                parts.append([part["type"], part.get("text"), part.get("url")])
            elif part["type"] == "data-compaction":
                data = part["data"]
                parts.append(["summary", data["summary"], data["tail_start_id"], data.get("split")])
        usage = row.get("usage") or {}
        counts = [usage.get("input", 0), usage.get("output", 0) + usage.get("reasoning", 0), usage.get("cache_read", 0)]
        return [row["role"], row.get("synthetic", False), row.get("hidden_by"), parts, counts]

    return [
        [turn["id"], turn["below"], turn["kind"], [said(rows[id_]) for id_ in turn["messages"]]]
        for turn in whole["turns"]
    ] + [whole["head"], whole["session"].get("title")]


@pytest.mark.rule("IO-2")
@pytest.mark.parametrize("program", ["claude-code", "pi"])
def test_a_session_of_clews_keeps_what_both_sides_have(run: Run, tmp_path: Path, program: str) -> None:
    """Steps with tools, a picture, a branch and an answer made anew go to another program and back."""
    session = asyncio.run(talked(f"sqlite:///{tmp_path}/store.db"))
    before = both(told(exported(run, session)))
    assert [turn[1] for turn in before[:-2]] == [None, "t1", "t1", "t1"]
    assert both(come_back(run, tmp_path, program, session)) == before


async def talked(store: str) -> str:
    script = (call("look", {"at": "door"}), say("At the door."), say("Left behind."), say("Asleep."), say("Or not."))
    async with clew.open(store, providers=FakeProviders(ScriptedModel(script)), tools=[look], rules=ALLOWED) as engine:
        session = (await engine.create_session(title="The thread")).id
        file = {"type": "file", "mediaType": "image/png", "url": f"data:image/png;base64,{PICTURE}"}
        await (await engine.submit(session, [{"type": "text", "text": "Where?"}, file])).wait()
        await (await engine.submit(session, "What is this?")).wait()
        asked = (await engine.messages(session))[2]
        await engine.rewind(session, asked.id, mode="edit")
        await (await engine.submit(session, "And the Minotaur?")).wait()
        again = await engine.continue_turn(session, mode="again")
        assert again is not None
        await again.wait()
        return session


ALLOWED = [clew.Rule(permission="look", pattern="*", action="allow")]
PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg=="


@clew.tool
async def look(at: str) -> str:
    """Look at something."""
    return f"a {at}"


@pytest.mark.rule("IO-2")
@pytest.mark.parametrize(
    ("source", "program"),
    [("codex/0.80", "claude-code"), ("pi/3", "claude-code"), ("opencode/files", "pi"), ("claude-code/2.1", "pi")],
)
def test_a_session_goes_from_one_program_to_another(run: Run, tmp_path: Path, source: str, program: str) -> None:
    """What was said, called and given back is there; the summary stands where it stood, with the tail it kept."""
    session = taken(run, source.partition("/")[0], PROGRAMS / source)["session_id"]
    before, after = told(exported(run, session)), come_back(run, tmp_path, program, session)

    def spoken(whole: dict[str, Any]) -> list[Any]:
        told_of = [entry for entry in both(whole) if isinstance(entry, list) and len(entry) == 4]
        return [
            [role, parts]
            for *_, messages in told_of
            for role, synthetic, _, parts, _ in messages
            if not synthetic and role == "user"
        ] + [[call for *_, messages in told_of for *_, parts, _ in messages for call in parts if len(call) == 5]]

    assert spoken(after) == spoken(before)
    assert [turn["kind"] for turn in after["turns"]] == [turn["kind"] for turn in before["turns"]]
    assert after["session"]["title"] == before["session"]["title"]


@pytest.mark.rule("IO-2")
def test_secrets_are_struck_out_of_what_goes_to_other_programs(run: Run, tmp_path: Path) -> None:
    """As of every export, unless somebody asks for them."""
    secret = "sk-ant-" + "a1B2c3D4" * 6
    file = tmp_path / "pi.jsonl"
    text = next((PROGRAMS / "pi/3").rglob("*.jsonl")).read_text().replace("Go on.", f"my key is {secret}")
    file.write_text(text.replace('"count":42', f'"token":"{secret}"'))
    session = taken(run, "pi", file)["session_id"]
    for program in ("claude-code", "pi"):
        struck, whole = (run("export", session, "--format", program, *words)[1] for words in ((), ("--keep-secrets",)))
        assert (secret in struck, secret in whole, "my key is" in struck) == (False, True, True)
