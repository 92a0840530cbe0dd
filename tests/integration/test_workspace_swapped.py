"""An owner's workspace that becomes a link after it was checked: nothing outside of it is read for a prompt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.prompt import admission, turn_config
from clew.workspace_config import find_workspace_model

pytestmark = [pytest.mark.anyio, pytest.mark.rule("OW-1")]
SKILL = "---\nname: far\ndescription: CANARY\n---\nCANARY"
AGENT = "---\ndescription: CANARY\n---\nCANARY"


def _fill(folder: Path) -> None:
    (folder / ".clew/skills/far").mkdir(parents=True)
    (folder / ".clew/agents").mkdir()
    (folder / "AGENTS.md").write_text("CANARY")
    (folder / ".clew/skills/far/SKILL.md").write_text(SKILL)
    (folder / ".clew/agents/far.md").write_text(AGENT)


async def _request(engine: clew.Engine, session_id: str) -> str:
    async for _ in engine.run(session_id, "hi"):
        pass
    (turn,) = (await engine.tree(session_id)).turns
    return str(await engine.request(turn.id))


async def test_a_workspace_that_is_swapped_after_the_check_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Swapped at the moment after the check, as a command of the owner's could do it."""
    inside, outside, aside = tmp_path / "root/d", tmp_path / "out", tmp_path / "root/e"
    inside.mkdir(parents=True)
    outside.mkdir()
    _fill(outside)

    def swapped(workspace: Path) -> str | None:
        if not inside.is_symlink():
            inside.rename(aside)
            inside.symlink_to(outside)
        return find_workspace_model(workspace)

    async with clew.open("memory:") as engine:
        ada = engine.scoped("ada", roots=[tmp_path / "root"])
        session = await ada.create_session(model="demo/echo", workspace_root=inside)
        monkeypatch.setattr(turn_config, "find_workspace_model", swapped)
        assert "CANARY" not in await _request(ada, session.id)


@pytest.mark.parametrize("swapped", ["workspace", "folder"])
async def test_an_attached_file_is_the_one_that_was_checked(
    swapped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link in the place of the workspace, or of a folder in it, at the moment after the check."""
    inside, outside = tmp_path / "root/d", tmp_path / "out"
    (inside / "sub").mkdir(parents=True)
    (inside / "sub/plan.txt").write_text("plan")
    (outside / "sub").mkdir(parents=True)
    (outside / "sub/plan.txt").write_text("CANARY")
    read = admission.read_parts

    def read_swapped(*args: Any) -> admission.PromptContent:
        moved, to = (inside, outside) if swapped == "workspace" else (inside / "sub", outside / "sub")
        moved.rename(tmp_path / "aside")
        moved.symlink_to(to)
        return read(*args)

    async with clew.open("memory:") as engine:
        ada = engine.scoped("ada", roots=[tmp_path / "root"])
        session = await ada.create_session(model="demo/echo", workspace_root=inside)
        part = {"type": "file", "mediaType": "text/plain", "url": "workspace:sub/plan.txt"}
        monkeypatch.setattr(admission, "read_parts", read_swapped)
        with pytest.raises(clew.errors.Invalid):
            await ada.submit(session.id, [part])
        assert await ada.messages(session.id) == []


async def test_what_lies_in_the_workspace_is_read(tmp_path: Path) -> None:
    """The same files inside of it reach the prompt."""
    inside = tmp_path / "root/d"
    inside.mkdir(parents=True)
    _fill(inside)
    async with clew.open("memory:") as engine:
        ada = engine.scoped("ada", roots=[tmp_path / "root"])
        session = await ada.create_session(model="demo/echo", workspace_root=inside)
        assert "CANARY" in await _request(ada, session.id)
        assert "far" in [agent.name for agent in (await ada.agents(inside)).agents]
