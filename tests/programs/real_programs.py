"""The session stores of real programs, through their own code. Only ``make test-programs`` asks for this file.

pi is installed from npm, in two versions. The others are read from checkouts with their dependencies, which CLEW_AGENT,
CLEW_MOLF and CLEW_GRIDA name. A program that is not there is skipped; :mod:`tests.programs.test_shapes` has its shape.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.history.check import check
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from tests.programs.written import STRANGE, write

HERE = Path(__file__).parent
MODULES = HERE / "node_modules"
CHECKOUTS = {"agent": "CLEW_AGENT", "molf": "CLEW_MOLF", "grida": "CLEW_GRIDA"}
PI = {"pi": "@earendil-works", "pi-0": "@mariozechner"}

Drive = Callable[[str, Path], Any]

SUMMARY = "## Goal\n- weigh spoons 🥄"
THEIRS = [["user", "theirs ü 🥄"], ["assistant", "their answer", "read"], ["toolResult", "a spoon", "tool"]]
CLEWS = [["user", "And you?"], ["assistant", "Me too."]]


@pytest.fixture
def drive(request: pytest.FixtureRequest) -> Drive:
    """Give an order to the program that the test is about; return what it printed."""
    name: str = request.param
    if name in PI:
        folder = MODULES / PI[name] / "pi-coding-agent"
        wanted = "make test-programs, which installs it"
    else:
        folder = Path(os.environ.get(CHECKOUTS[name], "/nowhere"))
        wanted = f"a checkout of it in {CHECKOUTS[name]}"
    if not folder.is_dir():
        pytest.skip(f"{name}: its shape alone was tested; the program needs {wanted}")
    program = "pi" if name in PI else name

    def order(what: str, place: Path) -> Any:
        node: list[str | Path] = [MODULES / "node/bin/node", "--no-warnings", "--import", "tsx", HERE / "drive.mjs"]
        words = [*node, program, folder, what, place]
        done = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return order


async def clew_goes_on(url: str, id_: str) -> None:
    """Continue a session in clew, and find nothing wrong with it."""
    providers = FakeProviders(ScriptedModel([say("Me too.")]))
    async with clew.open(url, providers=providers, config=clew.Config()) as e:
        await (await e.submit(id_, "And you?")).wait()
        assert await check(e.store) == []


def write_killed(url: str) -> str:
    """Write a session in a process that is killed in the middle of a turn."""
    words = [sys.executable, "-m", "tests.programs.written", url]
    done = subprocess.run(words, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    killed: str = json.loads(done.stdout)["killed"]
    return killed


async def exported(url: str, folder: Path, ids: dict[str, str]) -> None:
    async with clew.open(url, read_only=True, config=clew.Config()) as e:
        for name, id_ in ids.items():
            (folder / f"{name}.jsonl").write_bytes(await e.export(id_, "pi"))


def short(found: dict[str, Any]) -> list[Any]:
    """Return the messages of a session, each text at most 25 characters long."""
    return [[message[0], *(str(one)[:25] for one in message[1:])] for message in found["messages"]]


@pytest.mark.parametrize(("drive", "kind"), [("agent", "jsonl"), ("molf", "json")], indirect=["drive"])
async def test_a_store_of_files_is_shared_with_the_program(drive: Drive, kind: str, tmp_path: Path) -> None:
    """It reads what clew wrote, also after a kill; clew reads what it adds; it reads what clew adds to that."""
    url, place = f"{kind}:{tmp_path}", tmp_path / ("sessions" if kind == "jsonl" else "")
    ids = await write(url)
    ids["killed"] = write_killed(url)
    found = drive("read", place)
    names = {name: found[id_]["name"] for name, id_ in ids.items()}
    title = f"Spoons {STRANGE}"
    assert names == {"talk": title, "branch": f"{title} (branch)", "empty": "empty", "killed": "killed"}
    talk, branch = short(found[ids["talk"]]), short(found[ids["branch"]])
    assert SUMMARY in next(one[1] for one in found[ids["talk"]]["messages"] if SUMMARY in one[1])
    assert talk[-3:] == [["assistant", "the right way"], ["user", "And now?"], ["assistant", "at the end"]]
    assert [one for one in branch if one[0] == "toolResult"] == [
        ["toolResult", "weight of a/ü.txt:\n42 g", "tool"],
        ["toolResult", "there is no such file: 🫥", "error" if kind == "jsonl" else "tool"],
    ]
    assert branch[-1] == ["user", "And this?"]
    killed = [["user", "Weigh x"], ["assistant", "Looking.", "weigh"], ["toolResult", "weight of x:\n42 g", "tool"]]
    assert short(found[ids["killed"]]) == killed
    drive("continue", place)
    for id_ in ids.values():
        await clew_goes_on(url, id_)
    found = drive("read", place)
    for id_ in ids.values():
        theirs = [one for one in short(found[id_]) if one != ["assistant", "It weighs "]]
        assert theirs[-6:] == [*THEIRS, ["assistant", "their end"], *CLEWS]
    assert short(found[ids["killed"]])[:3] == killed
    drive("write", place)
    for id_ in drive("read", place).keys() - found.keys():
        await clew_goes_on(url, id_)
        assert short(drive("read", place)[id_]) == [*THEIRS, ["assistant", "their end"], *CLEWS]


@pytest.mark.parametrize("drive", ["grida"], indirect=True)
async def test_a_database_of_the_program_is_shared_with_it(drive: Drive, tmp_path: Path) -> None:
    """clew opens it, with a call that waits, and continues; the program reads that, continues, and clew reads it."""
    place = tmp_path / "sessions.db"
    drive("write", place)
    before = drive("read", place)
    own = next(id_ for id_, one in before.items() if one["name"] == "their own")
    theirs = [["user", "theirs ü 🥄"], ["assistant", "their answer", "a spoon", "their end"]]
    assert before[own]["messages"] == [["user", "before"], ["assistant", "and after"], *theirs]
    for id_ in before:
        await clew_goes_on(f"sqlite:///{place}", id_)
    found = drive("read", place)
    assert found[own]["messages"][-4:] == [*theirs, *CLEWS]
    [other] = found.keys() - {own}
    assert found[other]["messages"] == [
        ["user", "do it"],
        ["assistant", "aborted; its effects are unknown"],
        *CLEWS,
    ]
    drive("continue", place)
    for id_ in before:
        await clew_goes_on(f"sqlite:///{place}", id_)
        assert drive("read", place)[id_]["messages"][-4:] == [*theirs, *CLEWS]


@pytest.mark.parametrize("drive", list(PI), indirect=True)
async def test_sessions_go_to_the_program_and_come_back(drive: Drive, tmp_path: Path) -> None:
    """An export is read, continued, and imported again with what was added; so is a session of its own."""
    url, place = f"sqlite:///{tmp_path}/c.db", tmp_path / "pi"
    ids = await write(url)
    ids["killed"] = write_killed(url)
    place.mkdir()
    await exported(url, place, ids)
    found = drive("read", place)
    assert found["talk.jsonl"]["name"].startswith("Spoons löffel 🥄")
    talk, branch, killed = (short(found[f"{name}.jsonl"]) for name in ("talk", "branch", "killed"))
    assert found["talk.jsonl"]["messages"][0][1].startswith(SUMMARY)
    assert talk[1:] == [["assistant", "the right way"], ["user", "And now?"], ["assistant", "at the end"]]
    assert [one[0] for one in branch] == ["user", "assistant"] * 2 + ["toolResult"] * 2 + ["assistant", "user"]
    assert killed[1:3] == [["assistant", "Looking.", "weigh"], ["toolResult", "weight of x:\n42 g", "tool"]]
    drive("continue", place)
    drive("write", place)
    async with clew.open(f"sqlite:///{tmp_path}/in.db", config=clew.Config()) as e:
        for file in sorted(place.glob("*.jsonl")):
            came = await e.import_from("pi", file.read_bytes())
            assert came.outcome == "new"
            messages = await e.messages(came.session_id)
            answer = [part.get("text") or part.get("output") for part in messages[-1].parts]
            assert [one for one in answer if one] == ["their answer", "a spoon", "their end"]
            assert messages[-2].parts[0]["text"] == "theirs ü 🥄"
        assert await check(e.store) == []
