"""Every store passes the same suite: each test here runs once per store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from clew.ids import Mint
from clew.store.base import Store
from clew.store.files import folder
from clew.store.files.opening import FilesOptions, open_files
from clew.store.files.store import FileStore
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.testing.clock import FakeClock
from clew.testing.store_suite.fixtures import clock, mint, scribe
from tests.rounds import ON_POSTGRESQL

__all__ = ["clock", "mint", "scribe", "store"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of what is tried on every store PostgreSQL takes part in the suite alone, unless it is asked for: each test has
    a database of its own."""
    if not ON_POSTGRESQL:
        here = Path(__file__).parent
        left = [
            item
            for item in items
            if item.path.parent == here
            and item.path.name != "test_suite.py"
            and "store" in _named(item)
            and "[postgresql" in item.name
        ]
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]


def _named(item: pytest.Item) -> list[str]:
    return item.fixturenames if isinstance(item, pytest.Function) else []


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        "jsonl",
        pytest.param("json", marks=pytest.mark.slow),
        pytest.param("postgresql", marks=pytest.mark.service),
    ]
)
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock, mint: Mint, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Store]:
    store: Store
    if request.param == "memory":
        store = MemoryStore()
    elif request.param in ("jsonl", "json"):
        # What a loss of power would take is tested elsewhere; here it would only take time.
        monkeypatch.setattr(folder, "_sync", lambda fd: None)
        store = await open_files(request.param, tmp_path / "store", clock=clock, mint=mint)
    elif request.param == "postgresql":
        from clew.store.sql.postgres.opening import open_postgres

        url: str = request.getfixturevalue("postgres_store_url")
        store = await open_postgres(url, clock=clock, mint=mint)
    else:
        store = await open_sqlite(tmp_path / "store.db", clock=clock, mint=mint)
    yield store
    if isinstance(store, FileStore | SqliteStore) and not store._closed:
        await _comes_back(store)
    await store.close()


async def _comes_back(store: FileStore | SqliteStore) -> None:
    """Whatever a test did: what the files say is what the store said."""
    before = await _everything(store)
    await store.close()
    again: Store
    if isinstance(store, FileStore):
        again = await open_files(store._codec.kind, store.path, FilesOptions(read_only=True))  # type: ignore[arg-type]
    else:
        again = await open_sqlite(store.path, SqliteOptions(read_only=True))
    try:
        assert await again.verify() == ()
        assert await _everything(again) == before
    finally:
        await again.close()


async def _everything(store: Store) -> Any:
    found: dict[str | None, Any] = {None: await store.load_calls(None)}
    for session_id in await store.session_ids():
        whole = await store.find_full_session(session_id)
        assert whole is not None
        steps = {turn_id: await store.load_steps(turn_id) for turn_id in whole.tree.turns}
        found[session_id] = (
            whole,
            steps,
            await store.load_state(session_id),
            await store.load_line(session_id, keep_damaged=True),
        )
    return found
