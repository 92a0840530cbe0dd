"""The power goes while a store is being made, or a session is being written: nothing that was stored is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from typing import Literal

import pytest

import clew
from tests.rig.disk import Renamed, Sync, Write
from tests.rig.power import record, url_of

LOSSES: tuple[Literal["none", "half"], ...] = ("none", "half", "half")


@pytest.mark.rule("ST-7")
@pytest.mark.parametrize(("seed", "store"), [(0, "sqlite"), (1, "jsonl"), (2, "json")])
def test_a_cut_while_a_store_is_made_leaves_one_that_opens(tmp_path: Path, seed: int, store: str) -> None:
    """At its first writes, with none or a random half of what was not synced left; a hot journal is undone."""
    made = record(seed, tmp_path / "made")
    for end in range(5, 14):
        for number, loss in enumerate(LOSSES):
            folder = tmp_path / f"{end}-{number}"
            folder.mkdir()
            made.disk.put(made.disk.left(end, loss, Random(number)), folder)
            assert asyncio.run(sessions(url_of(store, folder))) == 0


async def sessions(url: str) -> int:
    async with clew.open(url, config=clew.Config()) as engine:
        return len((await engine.list_sessions()).sessions)


@pytest.mark.slow
@pytest.mark.rule("FS-3")
def test_a_session_file_is_synced_before_it_replaces_the_one_before(tmp_path: Path) -> None:
    """Whatever the unit asks for: after a loss of power the new name must not lead to an empty file."""
    made = record(89, tmp_path / "made")
    assert str(made) == "json durability=process history"
    unsynced: set[int] = set()
    newest, replaced = -1, 0
    for event in made.disk.events:
        match event:
            case Write(file=newest):
                unsynced.add(newest)
            case Sync(file=file):
                unsynced.discard(file)
            case Renamed(after=after) if "/sessions/" in after:
                assert newest not in unsynced
                replaced += 1
    assert replaced > 20
