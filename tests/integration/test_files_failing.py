"""Random units of which some fail half-way: rows, files and memory agree, and what was acknowledged stays."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from clew.errors import ClewError
from clew.store.base import SessionQuery, Store
from clew.store.files import folder, writer
from clew.store.files.cache import Cache
from clew.store.files.opening import open_files
from clew.store.unit import STORE_WIDE, DeleteSession, PatchSession, PutProjectRules, RecordStep, Unit
from clew.testing.chunks import reply, step, text
from clew.testing.scribe import Scribe
from clew.transcript.usage import Usage
from tests.rounds import rounds

from .test_files_store import Kind, both, everything


class Faults:
    """Lets one of the calls that a unit makes on its way fail."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._left: int | None = None
        self._errno = errno.ENOSPC
        for name in ("_write_all", "_sync", "failpoint"):
            patch.setattr(folder, name, self._failing(getattr(folder, name), lambda: OSError(self._errno, "no write")))
        for owner, name in ((writer, "failpoint"), (Cache, "set_file"), (Cache, "changes"), (Cache, "drop")):
            broken = self._failing(getattr(owner, name), lambda: sqlite3.OperationalError("disk I/O error"))
            patch.setattr(owner, name, broken)

    def _failing(self, real: Callable[..., Any], error: Callable[[], Exception]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if self._left is not None:
                self._left -= 1
                if self._left < 0:
                    self._left = None
                    raise error()
            return None if real is os.fsync else real(*given, **named)

        return call

    @contextlib.contextmanager
    def one(self, random: Random) -> Iterator[None]:
        """Let the n-th of these calls fail, if there are so many."""
        self._left, self._errno = random.randrange(12), random.choice((errno.ENOSPC, errno.EIO))
        try:
            yield
        finally:
            self._left = None


async def listed(store: Store) -> dict[str, str | None]:
    return {one.id: one.title for one in (await store.list_sessions(SessionQuery(limit=200))).sessions}


@both
@pytest.mark.rule("FS-2", "FS-3", "FS-4")
@pytest.mark.parametrize("seed", range(rounds(8)))
async def test_rows_files_and_memory_agree_after_units_that_failed(
    kind: Kind, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random, faults = Random(seed), Faults(monkeypatch)
    store = await open_files(kind, tmp_path / "store")
    scribes = [await Scribe.create(store, metadata={"title": "none"}) for _ in range(3)]
    titles: dict[str, str | None] = {one.session_id: "none" for one in scribes}
    for n in range(12):
        scribe = random.choice(scribes)
        id_, what = scribe.session_id, random.choice(("title", "title", "turn", "turn", "rules", "delete", "reopen"))
        done = False
        fault = faults.one(random) if random.random() < 0.7 and what != "reopen" else contextlib.nullcontext()
        with fault, contextlib.suppress(ClewError, OSError, sqlite3.Error):
            match what:
                case "title":
                    await scribe.commit(PatchSession(metadata={"title": f"title {n}"}))
                case "turn" if id_ in titles:
                    await a_turn(scribe, n)
                case "rules":
                    await store.commit(Unit(STORE_WIDE, (PutProjectRules("/project", ({"n": n},), n),)))
                case "delete":
                    await store.commit(Unit(id_, (DeleteSession(),)))
            done = True
        found = await listed(store)
        if what == "delete" and (done or id_ not in found):
            titles.pop(id_, None)
        elif what == "title" and id_ in titles and (done or found[id_] == f"title {n}"):
            titles[id_] = f"title {n}"  # it may be written although its folder was not synced, and is shown then
        assert found == titles, (what, done)
        assert await store.verify() == (), what
        if what == "reopen" or n == 11:
            shown, rules = await everything(store), await store.load_project_rules("/project")
            await store.close()
            if random.random() < 0.5:
                (tmp_path / "store" / "clew" / "cache.db").unlink()
            store = await open_files(kind, tmp_path / "store")
            for one in scribes:
                one.store = store
            assert (await everything(store), await store.load_project_rules("/project")) == (shown, rules)
            assert await store.verify() == ()
    await store.close()


async def a_turn(scribe: Scribe, n: int) -> None:
    opened = await scribe.prompt(f"hello {n}")
    recorder = opened.recorder()
    for chunk in reply(step(text("the thread leads out")), id=recorder.message.id)[:-1]:
        await recorder.send(chunk)
        await recorder.flush()
    await recorder.end_step(RecordStep(opened.step(recorder.message.id, Usage(1, 1))))
    await recorder.close(*opened.settling())
