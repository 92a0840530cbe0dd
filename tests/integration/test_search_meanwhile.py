"""A search while its index is being made: answered with what there is, marked as that, and complete by itself."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from clew.store import search
from clew.store.sql import search as sql_search
from clew.store.sql.sqlite import search_index
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from tests.integration.http_client import AsgiClient, served


def stores(tmp_path: Path) -> list[str]:
    return [f"sqlite:///{tmp_path}/clew.db", f"jsonl:{tmp_path}/lines", f"json:{tmp_path}/files"]


async def talks(client: AsgiClient, count: int) -> list[str]:
    """So many sessions of one turn."""
    ids = [await client.session() for _ in range(count)]
    for session_id in ids:
        await (await client.engine.submit(session_id, "a thimble")).wait()
    return ids


@pytest.mark.parametrize("store", [0, 1, 2])
async def test_a_search_is_answered_before_all_is_indexed_says_so_and_completes_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: int
) -> None:
    """One message a transaction: the first answer cannot have all of them."""
    for home, name in ((search_index, "BATCH"), (sql_search, "SOON")):
        monkeypatch.setattr(home, name, 1)
    first_answered = asyncio.Event()
    index_rest = sql_search.Indexing._index_remaining

    async def after_the_first_answer(index: sql_search.Indexing) -> None:
        await first_answered.wait()
        await index_rest(index)

    monkeypatch.setattr(sql_search.Indexing, "_index_remaining", after_the_first_answer)
    providers = FakeProviders(ScriptedModel([], otherwise=say("another thimble")))
    async with served(store=stores(tmp_path)[store], providers=providers) as client:
        ids = await talks(client, 4)
        answers: list[dict[str, Any]] = []
        while not answers or not answers[-1]["complete"]:
            answers.append((await client.get("/api/search?q=thimble")).json())
            first_answered.set()
        assert not answers[0]["complete"]
        assert len(answers[0]["hits"]) < 8
        last = answers[-1]
        assert ({hit["session_id"] for hit in last["hits"]}, len(last["hits"])) == ({*ids}, 8)
        assert (last["total"], last["at_least"]) == (8, False)


@pytest.mark.parametrize("store", [0, 1])
async def test_who_waits_is_answered_with_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: int
) -> None:
    """Also when another search has left the index half made, and a store closes in the middle of that."""
    for home, name in ((search_index, "BATCH"), (sql_search, "SOON")):
        monkeypatch.setattr(home, name, 1)
    providers = FakeProviders(ScriptedModel([], otherwise=say("another thimble")))
    async with served(store=stores(tmp_path)[store], providers=providers) as client:
        await talks(client, 4)
        assert not (await client.get("/api/search?q=thimble")).json()["complete"]
    async with served(store=stores(tmp_path)[store], providers=providers) as client:
        await client.get("/api/search?q=thimble")
        whole = (await client.get("/api/search?q=thimble&wait=true")).json()
        assert (whole["complete"], whole["total"], len(whole["hits"])) == (True, 8, 8)


async def test_of_a_word_that_is_everywhere_the_newest_hits_are_ranked_and_the_others_follow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No hit comes twice and none is left out, wherever a page ends; how many there are is said as at least."""
    monkeypatch.setattr(search, "MAX_RANKED", 5)
    providers = FakeProviders(ScriptedModel([], otherwise=say("another thimble")))
    async with served(store=stores(tmp_path)[0], providers=providers) as client:
        ids = await talks(client, 6)
        hits: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = (await client.get(f"/api/search?q=thimble&limit=2{cursor}")).json()
            assert (page["total"], page["at_least"], page["complete"]) == (5, True, True)
            hits += page["hits"]
            if page["next_cursor"] is None:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert (len(hits), len({hit["part_id"] for hit in hits})) == (12, 12)
        newest = {hit["session_id"] for hit in hits[:5]}
        assert newest == {*ids[-3:]}
        older = [ids.index(hit["session_id"]) for hit in hits[5:]]
        assert older == sorted(older, reverse=True)
        one = (await client.get(f"/api/search?q=thimble&session={ids[0]}")).json()
        assert (one["total"], one["at_least"], len(one["hits"])) == (2, False, 2)
