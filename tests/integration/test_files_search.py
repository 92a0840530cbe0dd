"""Searching a folder of sessions: by an index beside it, which is never the truth."""

from __future__ import annotations

import asyncio
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from clew.errors import NotSupported, StoreClosed
from clew.ids import SessionIdForm
from clew.session.history.check import check
from clew.store.base import SearchQuery
from clew.store.files import folder, search_copy
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


class Killed(Exception):
    """The process ends here."""


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
    left = [path for path in (tmp_path / "store" / "clew" / "search").rglob("*") if path.is_file()]
    assert left
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
    place = root / "clew" / "search"

    async def again(harm: Any) -> None:
        harm()
        opened = await open_files(kind, root)
        assert await hits(opened, "thimble") == expected
        assert await check(opened) == []
        await opened.close()

    await again(lambda: None)
    await again(lambda: shutil.rmtree(place))
    await again(lambda: (place / "index.db").write_bytes(b"no database"))
    await again(lambda: (place / "index.db").unlink())


@both
@pytest.mark.rule("FS-4")
async def test_a_search_that_ended_half_way_goes_on_with_the_next_one(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session is copied whole or not at all; what is there is not copied again."""
    monkeypatch.setattr(search_copy, "_AT_ONCE", 1)
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribes = [await Scribe.create(store) for _ in range(3)]
    for scribe in scribes:
        await scribe.turn("a thimble", text("yes"))
    real = search_copy.SearchCopy._copy
    copied: list[str] = []

    async def killed(self: Any, store: Any, session_id: str, *more: Any) -> None:
        copied.append(session_id)
        if len(copied) == 2:
            raise Killed
        await real(self, store, session_id, *more)

    monkeypatch.setattr(search_copy.SearchCopy, "_copy", killed)
    with pytest.raises(Killed):
        await store.search(SearchQuery("thimble"))
    first = copied[0]
    copied[:] = ["", ""]
    assert len(await hits(store, "thimble")) == 3
    assert first not in copied
    await store.close()


@both
@pytest.mark.rule("FS-4", "FS-5")
async def test_check_finds_an_index_that_says_something_else_than_the_files(kind: Kind, tmp_path: Path) -> None:
    """A note, or what is searched, that was changed behind clew's back is named; removing it is enough."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    one, other = await Scribe.create(store), await Scribe.create(store)
    for scribe in (one, other):
        await scribe.turn("a thimble", text("yes"))
    assert len(await hits(store, "thimble")) == 2
    copy = store._copy
    assert copy is not None
    assert copy._store is not None
    held = (await copy._store.find_session(one.session_id)).metadata  # type: ignore[union-attr]
    await copy._store.commit(Unit(one.session_id, (DeleteSession(),)))
    session = await store.find_session(one.session_id)
    assert session is not None
    bare = search_copy._begin(session, search_copy.Look(held["files"], held["hidden"]))
    await copy._store.commit(Unit(one.session_id, bare))
    [problem] = await check(store)
    assert problem.what.startswith("the search index is damaged: it holds other messages of session")
    await store.rebuild_search()
    assert await check(store) == []
    assert len(await hits(store, "thimble")) == 2
    await store.close()


@both
@pytest.mark.rule("FS-4")
async def test_a_reader_searches_what_the_owner_has_searched(kind: Kind, tmp_path: Path) -> None:
    """Before that it says what to do; nothing is written for it."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("a thimble", text("yes"))
    reader = await open_files(kind, root, FilesOptions(read_only=True))
    with pytest.raises(NotSupported, match="open it for writing and search once"):
        await reader.search(SearchQuery("thimble"))
    await hits(store, "thimble")
    assert await hits(reader, "thimble") == [(scribe.session_id, "a **thimble**")]
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
    copied = store._mint.session(store.capabilities.session_ids)
    await store.close()
    source = root / "sessions" / (scribe.session_id + (".json" if kind == "json" else ""))
    target = root / "sessions" / (copied + (".json" if kind == "json" else ""))
    (shutil.copytree if kind == "jsonl" else shutil.copyfile)(source, target)
    foreign = store._mint.session(store.capabilities.session_ids)
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
async def test_what_is_deleted_while_the_first_search_copies_is_not_found_by_it_nor_later(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files are about to go when the copy is begun, and are still there to be read."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    gone, kept = await Scribe.create(store), await Scribe.create(store)
    for scribe in (gone, kept):
        await scribe.turn("a thimble", text("yes"))
    removing, searched = threading.Event(), threading.Event()
    real = store._codec.remove

    def slowly(session_id: str) -> None:
        removing.set()
        searched.wait(60)
        real(session_id)

    monkeypatch.setattr(store._codec, "remove", slowly)
    deleting = asyncio.ensure_future(store.commit(Unit(gone.session_id, (DeleteSession(),))))
    await asyncio.to_thread(removing.wait, 60)
    assert await hits(store, "thimble") == [(kept.session_id, "a **thimble**")]
    searched.set()
    await deleting
    assert await hits(store, "thimble") == [(kept.session_id, "a **thimble**")]
    await store.close()
    files = [path for path in root.rglob("*") if path.is_file()]
    assert not [path for path in files if gone.session_id.encode() in path.read_bytes()]


@both
@pytest.mark.rule("FS-4")
async def test_a_search_that_is_going_on_when_the_store_closes_leaves_nothing_open(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends with store_closed; what it had copied is there for the next owner, and is not made again."""
    monkeypatch.setattr(search_copy, "_AT_ONCE", 1)
    root = tmp_path / "store"
    store = await open_files(kind, root)
    for _ in range(3):
        await (await Scribe.create(store)).turn("a thimble", text("yes"))
    real, copied = search_copy.SearchCopy._copy, asyncio.Event()

    async def told(self: Any, *given: Any) -> None:
        await real(self, *given)
        copied.set()

    monkeypatch.setattr(search_copy.SearchCopy, "_copy", told)
    searching = asyncio.ensure_future(store.search(SearchQuery("thimble")))
    await copied.wait()
    await store.close()
    with pytest.raises(StoreClosed):
        await searching
    assert not [one.name for one in threading.enumerate() if "index.db" in one.name]
    store = await open_files(kind, root)
    assert len(await hits(store, "thimble")) == 3
    await store.close()


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
