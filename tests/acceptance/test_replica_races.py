"""Races of replicas for one session: one winner each; and with the fence switched off the judge sees it."""

from __future__ import annotations

import pytest

from clew.store.base import Store
from clew.store.sql.sqlite.memory import MemoryStore
from tests.rig.races import REPLICAS, race

pytestmark = pytest.mark.rule("RP-1")


async def test_of_replicas_that_take_a_session_at_once_one_has_it() -> None:
    """All of them have read it as nobody's before the first writes."""
    assert await race([MemoryStore()], 100) == [1] * 100


@pytest.mark.service
async def test_of_replicas_on_postgresql_with_connections_of_their_own_one_has_it(postgres_store_url: str) -> None:
    from clew.store.sql.postgres.opening import open_postgres

    stores: list[Store] = [await open_postgres(postgres_store_url) for _ in range(3)]
    try:
        assert await race(stores, 30) == [1] * 30
    finally:
        for store in stores:
            await store.close()


async def test_without_the_fence_the_judge_of_the_races_sees_several_winners(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: with no guard judged, everybody who tries has the session."""
    monkeypatch.setattr("clew.store.sql.apply.refusal", lambda unit, *_: None)
    assert await race([MemoryStore()], 3) == [REPLICAS] * 3
