"""What somebody who moves, edits or breaks the files by hand meets, and what units that meet in one round do."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clew.errors import NotSupported, StorageFull
from clew.ids import Mint, SessionIdForm
from clew.session.history.check import check
from clew.store.base import SessionQuery
from clew.store.files import folder
from clew.store.files.opening import FilesOptions, open_files
from clew.store.unit import (
    STORE_WIDE,
    AddEvent,
    Committed,
    DeleteSession,
    EventIsNew,
    LinkBlob,
    PatchSession,
    PutBlob,
    PutProjectRules,
    PutSchedule,
    Refused,
    Unit,
    Write,
)
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.triggers.values.ledger import EventQuery, LedgerEvent
from clew.triggers.values.routing import Routing
from clew.triggers.values.schedule import Schedule

from .test_files_store import SHA, Kind, both, everything, full_disk

SCHEDULE = Schedule(id="sch_1", cron="0 9 * * *", prompt="go", created_at=1)


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


def event(scribe: Scribe, source_id: str) -> LedgerEvent:
    given: Any = {"source": "test", "source_id": source_id, "session_id": scribe.session_id, "message_id": None}
    return LedgerEvent(id=scribe.mint.event(), direction="in", at=5, **given)


def files_of(root: Path, kind: Kind, session_id: str) -> Path:
    return root / "sessions" / (session_id if kind == "jsonl" else f"{session_id}.json")


# Units that meet in a round


@both
@pytest.mark.rule("FS-4")
async def test_a_unit_that_fails_early_takes_nothing_of_others_with_it(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it never came to write down lies there as before."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    rules = ({"permission": "bash", "pattern": "ls *", "action": "allow"},)
    await scribe.commit(PutProjectRules("/project", rules, 1))
    await store.commit(Unit(STORE_WIDE, (PutSchedule(SCHEDULE),)))
    later = msgspec.structs.replace(SCHEDULE, next_fire_at=9)
    with full_disk(monkeypatch, 0), pytest.raises(StorageFull):
        await scribe.commit(AddEvent(event(scribe, "a")), PutSchedule(later), PutProjectRules("/project", (), 2))
    await store.close()
    store = await open_files(kind, tmp_path / "store")
    assert await store.list_schedules() == (SCHEDULE,)
    assert await store.load_project_rules("/project") == rules
    assert (await store.list_events(EventQuery())).events == ()
    await store.close()


@both
@pytest.mark.rule("ST-11", "FS-4")
async def test_a_file_that_one_session_drops_while_another_takes_it_stays(kind: Kind, tmp_path: Path) -> None:
    """Given at the same moment, in either order."""
    ways: tuple[Write, ...] = (PutBlob(SHA, "text/plain", b"file", 2), LinkBlob(SHA))
    for n, takes in enumerate(ways):
        store = await open_files(kind, tmp_path / f"store{n}")
        one, other = await Scribe.create(store), await Scribe.create(store)
        await one.commit(PutBlob(SHA, "text/plain", b"file", 1))
        drop, take = Unit(one.session_id, (DeleteSession(),)), Unit(other.session_id, (takes,))
        _, taken = await asyncio.gather(*(store.submit(unit) for unit in (drop, take)), return_exceptions=True)
        named = taken == Committed()
        found = await store.find_blob(SHA)
        assert (found is not None and found.data == b"file") == named
        await store.close()


@both
@pytest.mark.rule("EV-1", "FS-4")
async def test_events_that_come_at_once_are_numbered_and_told_apart(kind: Kind, tmp_path: Path) -> None:
    """Of many sessions in one moment: each has its own number, and none is taken twice."""
    store = await open_files(kind, tmp_path / "store")
    scribes = [await Scribe.create(store) for _ in range(4)]
    units = [
        Unit(scribe.session_id, (AddEvent(event(scribe, name)),), (EventIsNew("in", "test", name),))
        for scribe, name in zip(scribes, ("a", "b", "c", "a"), strict=True)
    ]
    outcomes = await asyncio.gather(*(store.submit(unit) for unit in units))
    assert outcomes == [Committed(), Committed(), Committed(), Refused("event_exists")]
    page = await store.list_events(EventQuery())
    assert [(one.seq, one.source_id) for one in page.events] == [(3, "c"), (2, "b"), (1, "a")]
    await store.close()


@both
@pytest.mark.rule("EV-2", "FS-4")
async def test_a_schedule_can_name_a_session_that_is_not_in_memory(kind: Kind, tmp_path: Path) -> None:
    """One that was let go of is there all the same."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await store.close()
    store = await open_files(kind, tmp_path / "store")
    assert store.in_memory == ()
    schedule = msgspec.structs.replace(SCHEDULE, routing=Routing(session_id=scribe.session_id))
    assert await store.commit(Unit(STORE_WIDE, (PutSchedule(schedule),))) == Committed()
    await store.close()


# Files by hand


@both
@pytest.mark.rule("ID-3", "FS-4")
async def test_a_session_is_what_its_place_says_whatever_is_written_in_it(kind: Kind, tmp_path: Path) -> None:
    """A copy made by hand is a session of its own, and no name in a file leads anywhere else."""
    root = tmp_path / "deep" / "store"
    store = await open_files(kind, root)
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    await store.close()
    copied = Mint().session(store.capabilities.session_ids)
    outside = Mint().session(store.capabilities.session_ids)
    ours = files_of(root, kind, scribe.session_id)
    (shutil.copytree if kind == "jsonl" else shutil.copy)(ours, files_of(root, kind, copied))
    (shutil.copytree if kind == "jsonl" else shutil.copy)(ours, files_of(root, kind, outside))
    (tmp_path / "elsewhere").mkdir()
    for path in [p for p in files_of(root, kind, outside).rglob("*") if p.is_file()] or [files_of(root, kind, outside)]:
        body = path.read_text().replace(scribe.session_id, "../../../elsewhere")
        body = re.sub(r',"check":"[0-9a-f]{8}"', "", body)  # whoever forges a file does not leave them wrong
        if kind == "json":
            document = json.loads(body)
            del document["clew"]["session_check"]
            document["clew"]["tables"]["row"] = [["session", document["clew"]["session"]]]
            body = json.dumps(document)
        path.write_text(body)
    store = await open_files(kind, root)
    expected = await store.find_full_session(scribe.session_id)
    for id_ in (copied, outside):
        assert [one.id for one in (await store.list_sessions(SessionQuery())).sessions].count(id_) == 1
        assert await store.commit(Unit(id_, (PatchSession(metadata={"title": id_}),))) == Committed()
        whole = await store.find_full_session(id_)
        assert whole is not None
        assert {whole.session.id, *(row.session_id for row in whole.messages)} == {id_}
        assert {turn.session_id for turn in whole.tree.turns.values()} == {id_}
        assert {move.session_id for move in whole.tree.moves} == {id_}
    assert await store.find_full_session(scribe.session_id) == expected
    await store.close()
    store = await open_files(kind, root)
    assert [(await store.find_session(id_)).title for id_ in (copied, outside)] == [copied, outside]  # type: ignore[union-attr]
    assert await store.find_full_session(scribe.session_id) == expected
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert await check(store) == []
    await store.close()


def broken(place: Path, kind: Kind) -> Iterator[Path]:
    """Sessions that cannot be read, each in its own way."""
    form = "jsonl" if kind == "jsonl" else "json"
    mint = Mint()
    ids = [mint.session(SessionIdForm.ULID if kind == "jsonl" else SessionIdForm.UUID) for _ in range(3)]
    files = [place / id_ / "session.jsonl" if form == "jsonl" else place / f"{id_}.json" for id_ in ids]
    files[0].mkdir(parents=True)
    yield files[0]
    deep = "[" * 1000 + "]" * 1000
    files[1].parent.mkdir(exist_ok=True)
    value = f'{{"id":"msg_x","session_id":"x","role":"user","metadata":{deep}}}'
    record = f'{{"recordType":"aside","seq":1,"value":{value},"unit":[1,1]}}'
    document = f'{{"id":"x","messages":[{{"clew":{{"row":[1,1,{deep}]}}}}]}}'
    files[1].write_text(record + "\n" if form == "jsonl" else document)
    yield files[1]
    files[2].parent.mkdir(exist_ok=True)
    files[2].symlink_to(files[2].name)  # leads to itself
    yield files[2]


@both
@pytest.mark.rule("FS-2", "FS-4")
async def test_a_session_that_cannot_be_read_costs_itself_and_not_the_store(kind: Kind, tmp_path: Path) -> None:
    """It is told, and is not written over; all others are there, for the owner and for a reader."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    expected = await store.find_full_session(scribe.session_id)
    await store.close()
    bad = list(broken(tmp_path / "store" / "sessions", kind))
    for read_only in (False, True):
        store = await open_files(kind, tmp_path / "store", FilesOptions(read_only=read_only))
        assert await store.find_full_session(scribe.session_id) == expected
        assert scribe.session_id in await store.session_ids()
        told = {damage.session_id for damage in await store.verify()}
        assert told == {(path.parent.name if kind == "jsonl" else path.stem) for path in bad}
        await store.close()
    assert [path.is_symlink() or path.exists() for path in bad] == [True, True, True]


@both
@pytest.mark.rule("FS-4")
async def test_a_session_whose_files_were_removed_is_gone(kind: Kind, tmp_path: Path) -> None:
    """From the list too, once somebody asked for it; deleting it is no error."""
    store = await open_files(kind, tmp_path / "store")
    one, other = await Scribe.create(store), await Scribe.create(store)
    await store.close()
    store = await open_files(kind, tmp_path / "store")
    for scribe in (one, other):
        place = files_of(tmp_path / "store", kind, scribe.session_id)
        await store.load_state(scribe.session_id) if scribe is other else None
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    assert await store.find_session(one.session_id) is None
    assert await store.session_ids() == (other.session_id,)
    assert await store.commit(Unit(other.session_id, (DeleteSession(),))) == Refused("session_not_found")
    assert await store.session_ids() == ()
    await store.close()


@both
@pytest.mark.rule("FS-4")
async def test_a_store_opens_on_a_full_disk(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing has to be written for it; metadata that lags waits for room."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    expected = await everything(store)
    await store.close()
    if kind == "jsonl":
        (files_of(tmp_path / "store", kind, scribe.session_id) / "metadata.json").unlink()
    with full_disk(monkeypatch, 0):
        store = await open_files(kind, tmp_path / "store")
        assert await everything(store) == expected
        await store.close()


@pytest.mark.rule("ST-5", "FS-3")
async def test_what_another_program_wrote_and_nobody_here_understands_is_written_back(tmp_path: Path) -> None:
    """A message of a role that clew has not, and one that is no message, are told and outlive every save."""
    strange: list[Any] = [{"id": "s", "role": "system", "text": "be kind", "more": [1]}, 7, {"no": "role"}]
    session_id = "0a1b2c3d-0000-4000-8000-000000000001"
    path = tmp_path / "sessions" / f"{session_id}.json"
    path.parent.mkdir()
    path.write_text(
        json.dumps({"id": session_id, "messages": [strange[0], {"role": "user", "text": "hi"}, *strange[1:]]})
    )
    for n in range(3):
        store = await open_files("json", tmp_path)
        assert len(await store.verify()) == 3
        assert [row.role for row in await store.load_messages(session_id)] == ["user"]
        await store.commit(Unit(session_id, (PatchSession(metadata={"n": n}),)))
        await store.close()
        assert sorted(json.loads(path.read_bytes())["clew"]["aside"], key=str) == sorted(strange, key=str)


@pytest.mark.rule("FS-2")
async def test_a_log_of_nothing_but_garbage_is_reported(tmp_path: Path) -> None:
    """Whole lines that do not read are damage wherever they stand; only what a kill cut short is none."""
    place = tmp_path / "sessions" / Mint().session(SessionIdForm.ULID)
    place.mkdir(parents=True)
    (place / "session.jsonl").write_bytes(b"\xff\xfe\n" * 2 + b'{"recordType":"mess')
    store = await open_files("jsonl", tmp_path, FilesOptions(read_only=True))
    assert [damage.what for damage in await store.verify()] == [
        f"line {n} of session.jsonl does not read" for n in (1, 2)
    ]
    await store.close()


@both
async def test_a_file_store_says_in_its_own_words_that_it_cannot_be_rebuilt(kind: Kind, tmp_path: Path) -> None:
    store = await open_files(kind, tmp_path / "store")
    with pytest.raises(NotSupported, match=f"a {kind}: store"):
        await store.rebuild(tmp_path / "new")
    await store.close()
