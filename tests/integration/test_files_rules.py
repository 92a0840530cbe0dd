"""Rules of a project that come with an answer: both are there after a kill, or neither."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clew.clock import SystemClock
from clew.ids import Mint
from clew.store.files import folder
from clew.store.files.opening import open_files
from clew.store.files.session_value import ABSENT
from clew.store.files.shared import SharedFiles
from clew.store.unit import PatchSession, PutProjectRules
from clew.testing.chunks import text
from clew.testing.scribe import Scribe

from .test_files_store import Kind, both

OLD: Any = ({"permission": "bash", "pattern": "ls *", "action": "allow"},)
NEW: Any = (*OLD, {"permission": "bash", "pattern": "make *", "action": "allow"})
LIFE = """
import asyncio, sys
from pathlib import Path
from clew import failpoints
from clew.store.files.opening import open_files
from clew.store.unit import PatchSession, PutProjectRules, Unit

async def main(kind, path, session_id, point):
    store = await open_files(kind, Path(path))
    known = await store.load_project_rules("/project")
    new = (*known, {"permission": "bash", "pattern": "make *", "action": "allow"})
    failpoints.arm(point)
    writes = (PutProjectRules("/project", new, 2), PatchSession(metadata={"answered": True}))
    await store.commit(Unit(session_id, writes, sync="power"))

asyncio.run(main(*sys.argv[1:]))
"""
POINTS = {
    "jsonl": {
        "files.before_rename=kill@1": False,
        "files.before_append=kill@1": False,
        "files.after_append=kill@1": True,
        "files.before_rename=kill@2": True,
        "files.before_true=kill@1": True,
        "files.before_cache=kill@1": True,
    },
    "json": {
        "files.before_rename=kill@1": False,
        "files.before_rename=kill@2": False,
        "files.before_true=kill@1": True,
        "files.before_cache=kill@1": True,
    },
}


async def begun(kind: Kind, root: Path) -> str:
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    await scribe.commit(PutProjectRules("/project", OLD, 1), PatchSession(metadata={"begun": True}))
    assert await store.load_project_rules("/project") == OLD
    await store.close()
    return scribe.session_id


async def found(kind: Kind, root: Path, session_id: str) -> tuple[Any, bool]:
    store = await open_files(kind, root)
    session = await store.find_session(session_id)
    assert session is not None
    rules = await store.load_project_rules("/project")
    await store.close()
    assert not [*(root / "clew" / "rules").glob("*.meant")]
    return rules, "answered" in session.metadata


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.rule("FS-4")
@pytest.mark.parametrize(("kind", "point"), [(kind, point) for kind, points in POINTS.items() for point in points])
def test_a_kill_leaves_the_rule_with_its_answer_or_neither(kind: Kind, point: str, tmp_path: Path) -> None:
    """Wherever between the two files it falls; the next opening brings what was written to its end."""
    root = tmp_path / "store"
    session_id = asyncio.run(begun(kind, root))
    killed = subprocess.run([sys.executable, "-c", LIFE, kind, str(root), session_id, point], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    there = POINTS[kind][point]
    assert asyncio.run(found(kind, root, session_id)) == (NEW if there else OLD, there)


@both
@pytest.mark.rule("FS-4")
async def test_a_rule_whose_answer_was_never_written_is_none(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one whose answer was, but which had not come true yet, comes true at the next opening."""
    monkeypatch.setattr(folder, "_sync", lambda fd: None)
    root = tmp_path / "store"
    session_id = await begun(kind, root)
    store = await open_files(kind, root)
    await store.load_state(session_id)
    loaded = store._codec.load(session_id)
    assert loaded is not None
    mark = store._codec.mark(session_id, loaded.memo)
    [(write, _)] = SharedFiles(root).plan({("rules", "/project"): (ABSENT, NEW)}, (session_id, mark)).before
    write()
    await store.close()
    assert await found(kind, root, session_id) == (OLD, False)
    store = await open_files(kind, root)
    with monkeypatch.context() as patch:
        patch.setattr(SharedFiles, "_make_true", _full)
        scribe = Scribe(store, session_id, Mint(), SystemClock())
        await scribe.commit(PutProjectRules("/project", NEW, 2), PatchSession(metadata={"answered": True}))
    assert await store.load_project_rules("/project") == NEW
    await store.close()
    assert await found(kind, root, session_id) == (NEW, True)


def _full(*_: Any) -> None:
    raise OSError(28, "No space left on device")
