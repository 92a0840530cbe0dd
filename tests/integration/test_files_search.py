"""Searching a folder of sessions: by an index beside it, which is never the truth."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from clew.ids import Mint, SessionIdForm
from clew.session.history.check import check
from clew.store.base import SearchQuery
from clew.store.files import folder
from clew.store.files.opening import FilesOptions, open_files
from clew.store.files.store import FileStore
from clew.store.unit import DeleteSession, PatchSession, Unit
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.testing.scripted import say
from clew.transcript.metadata import local_place
from tests.integration.http_client import served
from tests.integration.http_history import talked

from .test_files_store import Kind, both

PLACE = local_place(None)


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


async def hits(store: FileStore, wanted: str) -> list[tuple[str, str]]:
    page = await store.search(SearchQuery(wanted))
    return sorted((hit.session_id, hit.snippet) for hit in page.hits)


@both
@pytest.mark.rule("FS-4", "CP-4")
async def test_a_search_over_http_finds_what_was_said_also_what_was_rewound(kind: Kind, tmp_path: Path) -> None:
    """As in SQLite: hidden ones are marked, a new title is told, what was deleted is gone, on disk too."""
    async with served(say("the minotaur sleeps"), say("two"), store=f"{kind}:{tmp_path / 'store'}") as client:
        session_id, [user, _] = await talked(client, "where is the thread?", metadata=PLACE)
        [hit] = (await client.get("/api/search?q=minotaur%20sle")).json()["hits"]
        assert (hit["session_id"], hit["hidden"], hit["role"]) == (session_id, False, "assistant")
        assert hit["snippet"] == "the **minotaur** **sleeps**"
        assert hit["message_id"] == (await client.messages(session_id))[1]["id"]
        await client.post(f"/api/sessions/{session_id}/rewind", {"message_id": user["id"], "mode": "edit"})
        await client.request("PATCH", f"/api/sessions/{session_id}", {"title": "the maze"})
        [hit] = (await client.get("/api/search?q=minotaur")).json()["hits"]
        assert (hit["hidden"], hit["title"]) == (True, "the maze")
        assert (await client.request("DELETE", f"/api/sessions/{session_id}")).status == 204
        assert (await client.get("/api/search?q=minotaur")).json() == {
            "hits": [],
            "next_cursor": None,
            "complete": True,
            "total": 0,
            "at_least": False,
        }
    left = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert not [path for path in left if b"minotaur" in path.read_bytes()]


@both
@pytest.mark.rule("FS-4")
async def test_an_index_that_is_missing_damaged_or_behind_is_made_whole_by_the_next_search(
    kind: Kind, tmp_path: Path
) -> None:
    """What was written while nobody searched, what a search that was cut off left out, and all of it anew."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    one, other = await Scribe.create(store), await Scribe.create(store)
    await one.turn("a thimble", text("yes"))
    assert await hits(store, "thimble") == [(one.session_id, "a **thimble**")]
    await one.turn("another thimble", text("no"))
    await other.turn("thimble", text("perhaps"))
    expected = sorted(
        [(one.session_id, "a **thimble**"), (one.session_id, "another **thimble**"), (other.session_id, "**thimble**")]
    )
    await store.close()
    cache = root / "clew" / "cache.db"

    async def again(harm: Any) -> None:
        harm()
        opened = await open_files(kind, root)
        assert await hits(opened, "thimble") == expected
        assert await check(opened) == []
        await opened.close()

    await again(lambda: None)
    await again(lambda: cache.write_bytes(b"no database"))
    await again(lambda: cache.unlink())
    await again(lambda: cache.with_suffix(".state").unlink())


@both
@pytest.mark.rule("FS-4", "FS-5")
async def test_check_finds_a_cache_that_says_something_else_than_the_files(kind: Kind, tmp_path: Path) -> None:
    """Removing it is enough."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("a thimble", text("yes"))
    with contextlib.closing(sqlite3.connect(root / "clew" / "cache.db")) as cache:
        cache.execute("UPDATE chat_turns SET created_at = created_at + 1")
        cache.commit()
    assert [problem.what for problem in await check(store)] == [
        "the cache does not hold what its files say; remove clew/cache.db, which is made again"
    ]
    await store.close()
    (root / "clew" / "cache.db").unlink()
    store = await open_files(kind, root)
    assert await check(store) == []
    await store.close()


@both
@pytest.mark.rule("FS-4")
async def test_a_reader_searches_beside_the_owner(kind: Kind, tmp_path: Path) -> None:
    """Also what the owner has not searched yet, and what it writes later."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("a thimble", text("yes"))
    reader = await open_files(kind, root, FilesOptions(read_only=True))
    assert await hits(reader, "thimble") == [(scribe.session_id, "a **thimble**")]
    await scribe.turn("another thimble", text("yes"))
    expected = [(scribe.session_id, "a **thimble**"), (scribe.session_id, "another **thimble**")]
    assert await hits(reader, "thimble") == expected
    assert await hits(store, "thimble") == expected
    await reader.close()
    await store.close()


@both
@pytest.mark.rule("FS-4")
async def test_copies_made_by_hand_and_what_others_wrote_are_found_too(kind: Kind, tmp_path: Path) -> None:
    """Two sessions with the same messages are two hits; a message of another program has no seal of its own."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("a thimble", text("yes"))
    await scribe.commit(PatchSession(metadata={"title": "first"}))
    copied = Mint().session(store.capabilities.session_ids)
    await store.close()
    source = root / "sessions" / (scribe.session_id + (".json" if kind == "json" else ""))
    target = root / "sessions" / (copied + (".json" if kind == "json" else ""))
    (shutil.copytree if kind == "jsonl" else shutil.copyfile)(source, target)
    foreign = Mint().session(store.capabilities.session_ids)
    if kind == "json":
        said = '{"role":"user","text":"my thimble"}'
        (root / "sessions" / f"{foreign}.json").write_text(f'{{"id":"{foreign}","messages":[{said}]}}')
    else:
        (root / "sessions" / foreign).mkdir()
        block = '[{"type":"text","text":"my thimble"}]'
        line = f'{{"recordType":"message","schemaVersion":1,"seq":1,"role":"user","content":{block}}}\n'
        (root / "sessions" / foreign / "session.jsonl").write_text(line)
    store = await open_files(kind, root)
    found = {(scribe.session_id, "a **thimble**"), (copied, "a **thimble**"), (foreign, "my **thimble**")}
    assert set(await hits(store, "thimble")) == found
    assert store.capabilities.session_ids in (SessionIdForm.ULID, SessionIdForm.UUID)
    await store.close()


@both
@pytest.mark.rule("ST-11", "FS-4")
async def test_nothing_of_a_deleted_session_is_left_on_the_disk(kind: Kind, tmp_path: Path) -> None:
    """Neither in the cache nor in its log."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    gone, kept = await Scribe.create(store), await Scribe.create(store)
    for scribe in (gone, kept):
        await scribe.turn("a thimble", text(f"of {scribe.session_id}"))
    assert len(await hits(store, "thimble")) == 2
    await store.commit(Unit(gone.session_id, (DeleteSession(),)))
    assert await hits(store, "thimble") == [(kept.session_id, "a **thimble**")]
    await store.close()
    files = [path for path in root.rglob("*") if path.is_file()]
    assert not [path for path in files if gone.session_id.encode() in path.read_bytes()]


@both
@pytest.mark.rule("ST-11", "FS-4")
async def test_a_reader_does_not_find_what_was_deleted_after_the_index_was_made_anew(
    kind: Kind, tmp_path: Path
) -> None:
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("a thimble", text("yes"))
    await hits(store, "thimble")
    reader = await open_files(kind, root, FilesOptions(read_only=True))
    assert await hits(reader, "thimble") == [(scribe.session_id, "a **thimble**")]
    await store.rebuild_search()
    await store.commit(Unit(scribe.session_id, (DeleteSession(),)))
    assert await hits(reader, "thimble") == []
    await reader.close()
    await store.close()
