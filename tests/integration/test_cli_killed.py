"""A session whose process was killed, as commands show it that only read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.integration.processes import command, start

LEFT_OPEN = "the run ended before it could store its end; the turn is settled when the session is next used"


@pytest.mark.kill
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
async def test_a_killed_run_is_shown_as_failed_and_a_live_one_as_running(tmp_path: Path, kind: str) -> None:
    """By the list and by the tree alike: what counts is whether a process still owns the store."""
    url = f"sqlite:///{tmp_path}/some.db" if kind == "sqlite" else f"jsonl:{tmp_path}/some"

    async def shown(*words: str) -> Any:
        code, out, err = await command(tmp_path, *words, "--store", url)
        assert (code, err) == (0, "")
        return json.loads(out) if "--json" in words else out

    async def seen() -> tuple[str, str | None, str, str]:
        [session] = (await shown("ls", "--json"))["sessions"]
        status = session["status"]
        [turn] = (await shown("tree", session["id"], "--json"))["turns"]
        [line] = (await shown("tree", session["id"])).splitlines()
        return status["state"], status.get("message"), turn["status"], line.partition("  ")[2]

    process = await start(tmp_path, "run", "--model", "demo/long:slow", "hello", "--store", url)
    assert process.stdout is not None
    await process.stdout.readexactly(4)
    assert await seen() == ("busy", None, "running", "(running)  hello")
    process.kill()
    await process.wait()
    assert await seen() == ("error", LEFT_OPEN, "failed", "(failed)  hello")
