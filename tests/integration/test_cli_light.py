"""Commands that only read: what they load, and that search writes only if its index is behind."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import clew
from clew.fronts.cli.app import app
from clew.fronts.cli.commands import COMMANDS
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from tests.integration.command_line import Run, run
from tests.integration.processes import environment

__all__ = ["run"]

LIBRARIES = {
    "acp",
    "httpx",
    "mcp",
    "openai",
    "prompt_toolkit",
    "pydantic",
    "pydantic_ai",
    "rich",
    "starlette",
    "uvicorn",
}
PARTS = (
    *("clew.agents.catalog", "clew.fronts.http", "clew.fronts.remote.engine", "clew.permissions.evaluate"),
    *("clew.providers.registry", "clew.session.cluster.heartbeat", "clew.session.host", "clew.session.runtime"),
    *("clew.session.turn", "clew.store.sql.sqlite.writer", "clew.tools.builtin", "clew.tools.mcp.servers"),
    "clew.triggers.dispatcher",
)
"""What executes turns, serves others, or writes."""
LOADED = """
import contextlib, io, json, sys
from clew.fronts.cli.app import run_command
outputs = []
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        code = run_command(words)
    outputs.append((code, output.getvalue()))
print(json.dumps((outputs, sorted(sys.modules))))
"""


def loaded_by(tmp_path: Path, *commands: list[str]) -> tuple[list[tuple[int, str]], list[str]]:
    """Run commands in one new process; return their exit codes and outputs, and the modules it has loaded."""
    words = [sys.executable, "-c", LOADED, json.dumps(commands)]
    env = {**os.environ, **environment(tmp_path)}
    done = subprocess.run(words, capture_output=True, text=True, env=env, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    outputs, modules = json.loads(done.stdout)
    return [(code, output) for code, output in outputs], modules


async def fill(url: str) -> str:
    """Create a session with a turn, search it once, and return its id."""
    async with clew.open(url) as engine:
        scribe = await Scribe.create(engine.store)
        await scribe.turn("a lantern", text("here it is"))
        await engine.search("lantern", wait=True)
        return scribe.session_id


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_commands_that_read_load_only_the_store(tmp_path: Path, kind: str) -> None:
    """Neither tools, providers, the runtime, MCP or HTTP, nor rich, which only a terminal needs."""
    url = f"sqlite:///{tmp_path}/some.db" if kind == "sqlite" else f"jsonl:{tmp_path}/some"
    session_id = asyncio.run(fill(url))
    reads = [["ls"], ["ls", "--json"], ["show", session_id], ["tree", session_id], ["reflog", session_id], ["usage"]]
    reads.append(["search", "lantern"])
    outputs, modules = loaded_by(tmp_path, *([*words, "--store", url] for words in reads))
    assert [code for code, _ in outputs] == [0] * len(reads)
    assert all(session_id in output or "lantern" in output or "calls" in output for _, output in outputs)
    assert [name for name in modules if name.partition(".")[0] in LIBRARIES] == []
    # A folder's changed files are read into its cache, also by a reader.
    writer = [] if kind == "sqlite" else ["clew.store.sql.sqlite.writer"]
    assert [name for name in modules if name.startswith(PARTS)] == writer


def test_a_search_opens_the_store_for_writing_only_if_the_index_is_behind(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages that were added since are found; after that, nothing is written again."""
    url = f"sqlite:///{tmp_path}/some.db"
    session_id = asyncio.run(fill(url))
    modes = []
    opened = clew.open

    def note(*args: object, read_only: bool, **kwargs: object) -> object:
        modes.append("read" if read_only else "write")
        return opened(*args, read_only=read_only, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(clew, "open", note)

    def found() -> tuple[list[str], list[str]]:
        modes.clear()
        code, out, err = run("search", "lantern", "--json", "--store", url)
        assert (code, err) == (0, "")
        return [hit["snippet"] for hit in json.loads(out)["hits"]], list(modes)

    assert found() == (["a **lantern**"], ["read"])

    async def add() -> None:
        async with opened(url) as engine:
            await Scribe(engine.store, session_id, engine.mint, engine.clock).turn("the lantern again", text("yes"))

    asyncio.run(add())
    assert found() == (["a **lantern**", "the **lantern** again"], ["read", "write"])
    assert found() == (["a **lantern**", "the **lantern** again"], ["read"])


def test_every_command_of_the_table_is_there() -> None:
    """Each name is imported when it runs; none is missing then."""
    assert {name: app[name].name for name in COMMANDS} == {name: (name,) for name in COMMANDS}
