"""Random keys of another program, at every level of files that clew has written, through everything that writes.

The other program opens the file between two visits of clew and adds keys of its own to each object (issue 31; FS-7).
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import CompactionConfig
from clew.session.history.check import check
from clew.store.files import folder
from clew.testing.scripted import FakeProviders, ScriptedModel, call, say
from tests.acceptance.compacting import summary
from tests.integration.command_line import Run
from tests.integration.command_line import run as run
from tests.integration.test_unknown_keys_everywhere import Marker, written
from tests.rounds import rounds

pytestmark = pytest.mark.rule("FS-7")

_OWN = frozenset({"clew", "check", "arguments", "result"})
"""Objects that another program leaves alone: clew's own, and what a tool was given and gave."""
_PLACE = {"workerId": "w", "workspaceId": "s"}


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


def answer(request: Any) -> Any:
    """A call of a tool, then words; a summary where one is asked for."""
    if "summar" in json.dumps(request.system).lower():
        return say(summary("go on"))
    last = request.messages[-1].parts[-1]
    return call("ls", {"path": "."}) if last.get("type") == "text" else say("seen " + "word " * 400)


def engine(store: str) -> Any:
    config = clew.Config(compaction=CompactionConfig(preset="overlay", keep_recent_tokens=1))
    return clew.open(store, providers=FakeProviders(ScriptedModel(otherwise=answer)), config=config)


async def say_something(e: clew.Engine, session_id: str) -> None:
    await (await e.submit(session_id, "and now?", model="test/model")).wait()


async def take_back(e: clew.Engine, session_id: str) -> None:
    users = [message.id for message in await e.messages(session_id) if message.role == "user"]
    await e.rewind(session_id, users[-1], mode="edit")


async def take_back_and_return(e: clew.Engine, session_id: str) -> None:
    await take_back(e, session_id)
    await e.unrewind(session_id)


async def compact(e: clew.Engine, session_id: str) -> None:
    assert (await e.compact(session_id)).compacted


async def rename(e: clew.Engine, session_id: str) -> None:
    await e.rename_session(session_id, "renamed")


async def branch(e: clew.Engine, session_id: str) -> None:
    made = await e.branch(session_id, (await e.messages(session_id))[0].id)
    await e.delete_session(made.id)


WRITES = (say_something, take_back_and_return, compact, rename, branch, say_something, take_back, say_something)


def mark(folder_: Path, kind: str, marker: Marker) -> None:
    """The other program's visit."""
    for path in (folder_ / "sessions").rglob("*.json" if kind == "json" else "metadata.json"):
        document = json.loads(path.read_text())
        path.write_text(json.dumps(marker.mark(document, _OWN)))


@pytest.mark.parametrize("kind", ["json", "jsonl"])
async def test_keys_added_between_any_two_writes_stay_through_all_that_follow(tmp_path: Path, kind: str) -> None:
    """Of messages, calls, usage, files, metadata and ``metrics``; and nothing is called damaged."""
    for seed in range(rounds(1)):
        root = tmp_path / str(seed)
        store, marker = f"{kind}:{root}", Marker(seed)
        async with engine(store) as e:
            session_id = (await e.create_session(metadata=_PLACE, workspace_root=str(tmp_path))).id
            await say_something(e, session_id)
        for write in WRITES:
            mark(root, kind, marker)
            given = written(root)
            async with engine(store) as e:
                assert await check(e.store) == [], write
                await write(e, session_id)
            missing = given - written(root)
            assert missing == set(), f"{write.__name__} of seed {seed} lost {sorted(missing)[:5]}"
        assert not (root / "clew" / "damaged").exists()


@pytest.mark.parametrize("kind", ["json", "jsonl"])
def test_a_conversion_takes_them_along(tmp_path: Path, run: Run, kind: str) -> None:
    """To a folder of the same kind, through SQLite."""
    store, marker = f"{kind}:{tmp_path}/a", Marker(11)

    async def fill() -> None:
        async with engine(store) as e:
            session_id = (await e.create_session(metadata=_PLACE)).id
            await say_something(e, session_id)

    asyncio.run(fill())
    mark(tmp_path / "a", kind, marker)
    given = written(tmp_path / "a")
    assert given
    between = f"sqlite:///{tmp_path}/b.db"
    for source, target in ((store, between), (between, f"{kind}:{tmp_path}/c")):
        code, out, err = run("convert", source, target)
        assert code == 0, err or out
    assert given - written(tmp_path / "c") == set()
