"""Many sessions in a folder: what a list, an opening and a look at all of them read, and what stays in memory."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import clew
from clew.ids import Mint
from clew.session.history.check import check
from clew.store.base import SessionQuery
from clew.store.files import folder
from clew.store.files.codec import Codec
from clew.store.files.opening import FilesOptions, open_files
from clew.store.files.writer import MAX_IN_MEMORY
from clew.store.unit import DeleteSession, PatchSession, Unit
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.testing.scripted import FakeProviders, ScriptedModel, say
from clew.transcript.metadata import local_place
from clew.transcript.session import Spend
from clew.transcript.spend import UsageQuery
from clew.triggers.values.ledger import EventQuery
from clew.triggers.values.routing import Routing
from tests.acceptance.triggered import answered
from tests.integration.command_line import Run, run

from .test_files_store import Kind, both

__all__ = ["run"]


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sessions that were read, each time."""
    read: list[str] = []
    for codec in Codec.__subclasses__():
        real = codec.load

        def load(self: Any, session_id: str, real: Any = real) -> Any:
            read.append(session_id)
            return real(self, session_id)

        monkeypatch.setattr(codec, "load", load)
    return read


async def talked(kind: Kind, root: Path, count: int) -> list[str]:
    """So many sessions with a spent turn each, written a while ago."""
    url, model = f"{kind}:{root}", ScriptedModel([say(f"answer {n}") for n in range(count)])
    made = []
    async with clew.open(url, providers=FakeProviders(model), config=clew.Config()) as engine:
        for n in range(count):
            session = await engine.create_session(title=f"number {n}", metadata=local_place(None))
            async for _ in engine.run(session.id, f"prompt {n}"):
                pass
            made.append(session.id)
    then = time.time() - 60
    for path in (path for path in (root / "sessions").rglob("*") if path.is_file()):
        os.utime(path, (then, then))
    await (await open_files(kind, root)).close()  # what was written just now is read again
    return made


@both
@pytest.mark.rule("FS-6")
async def test_lists_openings_and_sums_read_no_session(kind: Kind, tmp_path: Path, loads: list[str]) -> None:
    """Not the owner's and not a reader's; all say what the sessions themselves do."""
    made = await talked(kind, tmp_path / "store", 3)
    truth = {}
    store = await open_files(kind, tmp_path / "store")
    for session_id in made:
        loaded = store._codec.load(session_id)
        assert loaded is not None
        truth[session_id] = (loaded.value.session, loaded.value.spend)
    used = await store.load_usage(UsageQuery(by="model"))
    await store.close()
    loads.clear()
    for read_only in (False, True):
        store = await open_files(kind, tmp_path / "store", FilesOptions(read_only=read_only))
        page = await store.list_sessions(SessionQuery())
        spent = await store.load_spend(made)
        plain = {one.id: replace(one, spend=Spend(0, 0, 0.0, 0)) for one in page.sessions}
        assert plain == {id_: session for id_, (session, _) in truth.items()}
        assert spent == {id_: spend for id_, (_, spend) in truth.items()}
        assert [spend.calls for spend in spent.values()] == [1, 1, 1]
        assert await store.load_usage(UsageQuery(by="model")) == used
        assert (await store.session_ids(), store.in_memory) == (tuple(sorted(made)), ())
        await store.close()
    assert loads == []


@pytest.mark.rule("FS-6")
@pytest.mark.parametrize("kind", ["jsonl", "json"])
def test_the_command_that_lists_reads_no_session(
    kind: Kind, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, loads: list[str]
) -> None:
    """``clew ls`` as a user types it, beside nobody."""
    made = asyncio.run(talked(kind, tmp_path / "store", 3))
    loads.clear()
    code, out, said = run("ls", "--store", f"{kind}:{tmp_path / 'store'}", "--json")
    assert (code, said) == (0, "")
    assert all(session_id in out for session_id in made)
    assert '"calls":1' in out.replace(" ", "")
    assert loads == []


@both
@pytest.mark.rule("FS-6")
async def test_only_files_that_have_changed_are_read_at_opening(kind: Kind, tmp_path: Path, loads: list[str]) -> None:
    """Also one that another program changed without a word; a cache that is gone or changed is made again."""
    root = tmp_path / "store"
    made = await talked(kind, root, 4)
    cache = root / "clew" / "cache.db"

    async def titles() -> dict[str, str | None]:
        store = await open_files(kind, root)
        found = {one.id: one.title for one in (await store.list_sessions(SessionQuery())).sessions}
        await store.close()
        return found

    truth = {id_: f"number {n}" for n, id_ in enumerate(made)}
    assert await titles() == truth
    loads.clear()
    assert (await titles(), loads) == (truth, [])
    path = root / "sessions" / (f"{made[2]}.json" if kind == "json" else f"{made[2]}/session.jsonl")
    path.write_bytes(path.read_bytes().replace(b"answer 2", b"answer 7"))
    store = await open_files(kind, root)
    assert loads == [made[2]]
    assert {problem.session_id for problem in await check(store)} == {made[2]}
    await store.close()
    loads.clear()
    cache.write_bytes(cache.read_bytes().replace(b"number 0", b"number 9"))
    assert (await titles(), sorted(loads)) == (truth, sorted(made))
    loads.clear()
    cache.unlink()
    assert (await titles(), sorted(loads)) == (truth, sorted(made))


@both
@pytest.mark.rule("FS-6")
async def test_no_more_than_so_many_sessions_stay_in_memory(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that were written last, until they are released; reading a session keeps nothing of it."""
    monkeypatch.setattr("clew.store.files.writer.MAX_IN_MEMORY", 3)
    store = await open_files(kind, tmp_path / "store")
    scribes = [await Scribe.create(store) for _ in range(8)]
    heads = [(await scribe.turn(f"prompt {n}", text("yes")))[0] for n, scribe in enumerate(scribes)]
    assert store.in_memory == tuple(sorted(scribe.session_id for scribe in scribes[-3:]))
    for scribe in scribes:
        await store.release(scribe.session_id)
    assert store.in_memory == ()
    for scribe, head in zip(scribes, heads, strict=True):
        assert len(await store.load_messages(scribe.session_id)) == 2
        turn = await store.find_turn(head)
        assert turn is not None
        assert turn.session_id == scribe.session_id
    assert await store.find_turn(Mint().turn()) is None
    assert store.in_memory == ()
    await store.close()
    assert MAX_IN_MEMORY == 64


@pytest.mark.rule("FS-6")
@pytest.mark.parametrize("kind", ["jsonl", "json"])
async def test_a_change_touches_the_files_of_its_session_alone(kind: Kind, tmp_path: Path) -> None:
    """However many others there are: what is written for it does not grow with them."""
    root = tmp_path / "store"
    store = await open_files(kind, root)
    scribes = [await Scribe.create(store) for _ in range(5)]
    before = stamps(root)
    await scribes[2].commit(PatchSession(metadata={"title": "new"}))
    after = {path: stamp for path, stamp in stamps(root).items() if path.parent.name != "clew"}
    changed = {path for path, stamp in after.items() if before.get(path) != stamp}
    assert changed
    assert all(scribes[2].session_id in str(path) for path in changed)
    await store.close()


def stamps(root: Path) -> dict[Path, tuple[int, int]]:
    found = (path for path in root.rglob("*") if path.is_file())
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in found}


@both
@pytest.mark.rule("FS-6")
async def test_calls_that_outlived_their_session_are_counted(kind: Kind, tmp_path: Path) -> None:
    """Each deletion adds to the file of a day; after the next opening it says the same."""
    made = await talked(kind, tmp_path / "store", 3)
    store = await open_files(kind, tmp_path / "store")
    used = await store.load_usage(UsageQuery(by="model"))
    for n, session_id in enumerate(made, 1):
        await store.commit(Unit(session_id, (DeleteSession(),)))
        assert len(await store.load_calls(None)) == n
    assert await store.load_usage(UsageQuery(by="model")) == used
    await store.close()
    (tmp_path / "store" / "clew" / "cache.db").unlink()
    store = await open_files(kind, tmp_path / "store")
    assert await store.load_usage(UsageQuery(by="model")) == used
    await store.close()


@both
@pytest.mark.rule("FS-5")
async def test_damage_that_a_note_does_not_know_of_costs_the_ledger_nothing(kind: Kind, tmp_path: Path) -> None:
    """A letter goes bad on the disk: the file has its size and its time, and the newest event its message in there."""
    root = tmp_path / "store"
    [session_id] = await talked(kind, root, 1)
    providers = FakeProviders(ScriptedModel([say("an answer to it")]))
    async with clew.open(f"{kind}:{root}", providers=providers, config=clew.Config()) as engine:
        await engine.events.receive("mail", "1", Routing(session_id=session_id), text="a delivery")
        await answered(engine, 1)
    [path] = [path for path in (root / "sessions").rglob("*") if path.name != "metadata.json" and path.is_file()]
    os.utime(path, ns=(1, 1))
    await (await open_files(kind, root)).close()
    sound = path.read_bytes()

    async def events() -> list[tuple[str, str]]:
        store = await open_files(kind, root)
        assert store.in_memory == ()
        page = await store.list_events(EventQuery())
        found = sorted((str(one.direction), one.source_id) for one in page.events)
        await store.close()
        return found

    assert await events() == [("in", "1"), ("out", "1")]
    path.write_bytes(sound.replace(b"answer to it", b"answer to i\0"))
    os.utime(path, ns=(1, 1))
    assert await events() == [("in", "1"), ("out", "1")]


@pytest.mark.rule("FS-6")
async def test_a_reader_lists_what_the_session_says_when_another_program_wrote_its_metadata_anew(
    tmp_path: Path,
) -> None:
    """With its own keys alone: an archived session does not come back, and its name is still that of the log."""
    root = tmp_path / "store"
    [session_id] = await talked("jsonl", root, 1)
    async with clew.open(f"jsonl:{root}", providers=FakeProviders(ScriptedModel([])), config=clew.Config()) as engine:
        await engine.archive_session(session_id)
    path = root / "sessions" / session_id / "metadata.json"
    known = json.loads(path.read_bytes())
    path.write_text(json.dumps({**{key: known[key] for key in ("id", "createdAt", "model")}, "name": "theirs"}))
    reader = await open_files("jsonl", root, FilesOptions(read_only=True))
    assert (await reader.list_sessions(SessionQuery())).sessions == ()
    [listed] = (await reader.list_sessions(SessionQuery(archived=True))).sessions
    assert (listed.title, (await reader.load_spend([session_id]))[session_id].calls) == ("number 0", 1)
    await reader.close()


@both
@pytest.mark.rule("FS-6")
async def test_many_who_ask_for_a_session_that_was_changed_wait_for_one_reading_of_it(
    kind: Kind, tmp_path: Path, loads: list[str]
) -> None:
    [session_id] = await talked(kind, tmp_path / "store", 1)
    store = await open_files(kind, tmp_path / "store")
    for path in (path for path in (tmp_path / "store" / "sessions").rglob("*") if path.is_file()):
        os.utime(path, (1, 1))
    loads.clear()
    [first, *others] = await asyncio.gather(*(store.load_messages(session_id) for _ in range(8)))
    assert [row.role for row in first] == ["user", "assistant"]
    assert others == [first] * 7
    assert loads == [session_id]
    await store.close()


@both
@pytest.mark.rule("FS-6")
async def test_what_was_written_a_moment_ago_is_read_again(kind: Kind, tmp_path: Path, loads: list[str]) -> None:
    """Another change at the same moment could leave the files looking alike."""
    [session_id] = await talked(kind, tmp_path / "store", 1)
    soon = time.time() + 60
    for path in (path for path in (tmp_path / "store" / "sessions").rglob("*") if path.is_file()):
        os.utime(path, (soon, soon))
    for _ in range(2):
        loads.clear()
        await (await open_files(kind, tmp_path / "store")).close()
        assert loads == [session_id]


@both
@pytest.mark.rule("FS-6", "ST-14")
async def test_a_reader_does_not_list_what_was_changed_in_the_row_of_a_session(kind: Kind, tmp_path: Path) -> None:
    """A letter of it goes bad on the disk: it is not shown as the name."""
    root = tmp_path / "store"
    await talked(kind, root, 1)
    [path] = [path for path in (root / "sessions").rglob("*.json") if path.is_file()]
    path.write_bytes(path.read_bytes().replace(b"number 0", b"number 8"))
    reader = await open_files(kind, root, FilesOptions(read_only=True))
    [listed] = (await reader.list_sessions(SessionQuery())).sessions
    assert listed.title == ("number 0" if kind == "jsonl" else "(damaged)")
    await reader.close()
