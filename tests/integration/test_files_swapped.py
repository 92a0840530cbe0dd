"""A folder of an owner's that becomes a link after it was checked: no names are told of where it leads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.api import files

pytestmark = pytest.mark.rule("OW-1")


@pytest.mark.parametrize("folders", [False, True])
async def test_a_folder_swapped_for_a_link_after_the_check_tells_nothing(
    folders: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "d").mkdir(parents=True)
    (outside / "secret").mkdir(parents=True)
    (outside / "secret.txt").write_text("theirs")
    name = "_find_folders" if folders else "_find"
    look = getattr(files, name)

    def swapped(*args: Any) -> Any:
        (root / "d").rename(root / "e")
        (root / "d").symlink_to(outside)
        return look(*args)

    monkeypatch.setattr(files, name, swapped)
    async with clew.open("memory:") as engine:
        ada = engine.scoped("ada", roots=[root])
        assert await ada.find_files("s", workspace=root / "d", folders=folders) == []
