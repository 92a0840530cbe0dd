"""What both file stores do about disks, other processes and other folders."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
import orjson
import pytest

import clew
from clew.errors import (
    InvalidId,
    NotSupported,
    OwnedByAnotherProcess,
    SchemaTooNew,
    StorageFull,
    StoreReadOnly,
    StoreUnavailable,
)
from clew.ids import Mint
from clew.session.history.check import check
from clew.store.files import folder
from clew.store.files.cache import SHARED_ENTRIES, TOUCHES
from clew.store.files.crc import with_check
from clew.store.files.opening import FilesOptions, open_files
from clew.store.files.session_value import TABLES, SessionValue
from clew.store.files.shared import SHARED
from clew.store.files.store import FileStore
from clew.store.location import Folder, parse_url
from clew.store.sql.statements import read_sql
from clew.store.unit import InsertSession, PatchSession, PutBlob, PutProjectRules, RecordStep, Unit
from clew.testing.chunks import reply, step, text
from clew.testing.scribe import MODEL, Scribe
from clew.transcript.session import Session
from clew.transcript.usage import Usage
from clew.triggers.values.routing import Routing
from tests.acceptance.triggered import answered
from tests.rig.child import Child, Orders

Kind = Literal["jsonl", "json"]
SHA = sha256(b"file").hexdigest()
both = pytest.mark.parametrize("kind", ["jsonl", "json"])


async def everything(store: Any) -> Any:
    return {id_: await store.find_full_session(id_) for id_ in await store.session_ids()}


@contextlib.contextmanager
def full_disk(monkeypatch: pytest.MonkeyPatch, room: int) -> Any:
    """Room for so many bytes more, then none."""
    real, left = os.write, room

    def write(fd: int, data: Any) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = real(fd, data[:left])
        left -= taken
        return taken

    with monkeypatch.context() as patch:
        patch.setattr("clew.store.files.folder.os.write", write)
        yield


@both
@pytest.mark.rule("FS-2", "FS-3")
async def test_a_full_disk_refuses_the_unit_and_leaves_the_store_sound(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever in the unit the room ends: nothing of it is there, and with room again everything goes on."""
    monkeypatch.setattr(folder, "_sync", lambda fd: None)
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    for room in (0, 1, 50, 400, 900):
        before = await everything(store)
        with full_disk(monkeypatch, room), pytest.raises(StorageFull):
            await scribe.turn("there is no room for this " * 200, text("none"))
        assert await everything(store) == before
        with full_disk(monkeypatch, room), pytest.raises(StorageFull):
            await Scribe.create(store, metadata={"title": "x" * 2_000})
        assert await everything(store) == before
        await scribe.commit(PatchSession(metadata={"room": room}))
    assert not [path for path in (tmp_path / "store").rglob("*") if folder.is_temporary(path)]
    await scribe.turn("again", text("fine"))
    expected = await everything(store)
    assert await check(store) == []
    await store.close()
    again = await open_files(kind, tmp_path / "store")
    assert await everything(again) == expected
    assert await check(again) == []
    await again.close()


@both
@pytest.mark.rule("FS-4")
async def test_rules_of_a_project_are_put_back_when_their_unit_fails(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies under ``clew`` is part of the unit."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    old = ({"permission": "bash", "pattern": "ls *", "action": "allow"},)
    await scribe.commit(PutProjectRules("/project", old, 1))
    with full_disk(monkeypatch, 400), pytest.raises(StorageFull):
        await scribe.commit(
            PutProjectRules("/project", ({"permission": "bash", "pattern": "*", "action": "allow"},), 2),
            PatchSession(metadata={"much": "x" * 5_000}),
        )
    assert await store.load_project_rules("/project") == old
    await store.close()
    store = await open_files(kind, tmp_path / "store")
    assert await store.load_project_rules("/project") == old
    await store.close()


@both
@pytest.mark.kill
@pytest.mark.rule("FS-4", "ST-9")
async def test_a_second_process_is_told_who_owns_the_store_and_may_read(kind: Kind, tmp_path: Path) -> None:
    """Its lock goes with it, however it ends; what it wrote is seen by a reader while it lives."""
    url = f"{kind}:{tmp_path / 'store'}"
    with Child(Orders(store=url, stage="hold", streams=1, size=40)) as child:
        child.wait_until(lambda child: child.staged)
        with pytest.raises(OwnedByAnotherProcess) as refused:
            await open_files(kind, tmp_path / "store")
        assert refused.value.ids["pid"] == child.pid
        reader = await open_files(kind, tmp_path / "store", FilesOptions(read_only=True))
        [session_id] = await reader.session_ids()
        [stream] = child.streams.values()
        assert (await reader.load_messages(session_id))[0].id == stream.user_id
        with pytest.raises(StoreReadOnly):
            reader.submit(Unit(session_id, (PatchSession(metadata={"a": 1}),)))
        await reader.close()
        child.kill()
    async with clew.open(url, config=clew.Config()) as engine:
        assert await check(engine.store) == []


@both
async def test_a_reader_sees_what_the_owner_has_written_since(kind: Kind, tmp_path: Path) -> None:
    """New sessions, changed ones, and that one is gone; also prompts, rules and files."""
    store = await open_files(kind, tmp_path / "store")
    reader = await open_files(kind, tmp_path / "store", FilesOptions(read_only=True))
    assert await reader.session_ids() == ()
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    await scribe.commit(PutBlob(SHA, "text/plain", b"file", 1))
    assert await everything(reader) == await everything(store)
    found = await reader.find_blob(SHA)
    assert found is not None
    assert found.data == b"file"
    await scribe.turn("more", text("of it"))
    assert await everything(reader) == await everything(store)
    assert await reader.find_session("../" + scribe.session_id) is None
    await store.close()
    await reader.close()


@both
@pytest.mark.rule("ST-8")
async def test_a_backup_is_a_store_of_its_own(kind: Kind, tmp_path: Path) -> None:
    """Made while the store is open; it takes no place that is taken."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    await scribe.commit(PutBlob(SHA, "text/plain", b"file", 1))
    await store.backup(tmp_path / "copy")
    with pytest.raises(clew.InvalidInput):
        await store.backup(tmp_path / "copy")
    copy = await open_files(kind, tmp_path / "copy")
    assert await everything(copy) == await everything(store)
    blob = await copy.find_blob(SHA)
    assert blob is not None
    assert blob.data == b"file"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "copy").rglob("*") if path.is_file()} == {0o600}
    await copy.close()
    await store.close()


@both
@pytest.mark.rule("FS-4")
async def test_a_session_that_is_let_go_of_while_it_is_read_is_still_there(kind: Kind, tmp_path: Path) -> None:
    """Between its files being read and whoever asked going on; it was "not there", or had no turns."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.turn("hello", text("hi"))
    tree = await store.load_tree(scribe.session_id)
    await store.release(scribe.session_id)
    asked = asyncio.create_task(store.load_tree(scribe.session_id))
    while not asked.done():
        await store.release(scribe.session_id)
        await asyncio.sleep(0)
    assert await asked == tree
    await store.close()


@both
async def test_files_go_with_the_last_session_that_names_them(kind: Kind, tmp_path: Path) -> None:
    """And one that a crash left without a session goes when the store is opened."""
    from clew.store.unit import DeleteSession, LinkBlob

    store = await open_files(kind, tmp_path / "store")
    one, other = await Scribe.create(store), await Scribe.create(store)
    await one.commit(PutBlob(SHA, "text/plain", b"file", 1))
    await other.commit(LinkBlob(SHA))
    await store.release(other.session_id)
    await one.commit(DeleteSession())
    assert await store.find_blob(SHA) is not None
    await other.commit(DeleteSession())
    assert await store.find_blob(SHA) is None
    await store.close()
    blobs = tmp_path / "store" / "clew" / "blobs"
    assert list(blobs.iterdir()) == []


@both
async def test_a_folder_of_the_other_format_or_a_newer_one_is_refused_untouched(kind: Kind, tmp_path: Path) -> None:
    """A file is no folder, either."""
    other: Kind = "json" if kind == "jsonl" else "jsonl"
    await (await open_files(kind, tmp_path / "store")).close()
    with pytest.raises(StoreUnavailable, match=f"holds a {kind}: store"):
        await open_files(other, tmp_path / "store")
    mark = tmp_path / "store" / "clew" / "format.json"
    mark.write_bytes(with_check(b'{"format":"%s","version":5}' % kind.encode()))
    with pytest.raises(SchemaTooNew):
        await open_files(kind, tmp_path / "store")
    assert json.loads(mark.read_text())["version"] == 5
    # One of an older version is read, and says the new one as soon as it is opened for writing.
    mark.write_text(json.dumps({"format": kind, "version": 1}))
    await (await open_files(kind, tmp_path / "store", FilesOptions(read_only=True))).close()
    assert json.loads(mark.read_text())["version"] == 1
    await (await open_files(kind, tmp_path / "store")).close()
    assert json.loads(mark.read_text())["version"] == 4
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreUnavailable, match="is a file"):
        await open_files(kind, tmp_path / "file")
    with pytest.raises(StoreUnavailable, match="there is no store"):
        await open_files(kind, tmp_path / "nowhere", FilesOptions(read_only=True))


@both
@pytest.mark.rule("FS-4")
async def test_what_the_format_lacks_is_declared_and_refused_with_a_code(kind: Kind, tmp_path: Path) -> None:
    """And stands in the one table of the docs."""
    store = await open_files(kind, tmp_path / "store")
    able = store.capabilities
    assert (able.chunk_durable, able.search, able.many_processes) == (kind == "jsonl", True, False)
    with pytest.raises(NotSupported) as refused:
        await store.rebuild(tmp_path / "again")
    assert refused.value.code == "not_supported"
    page = (Path(__file__).parents[2] / "docs" / "storage-format" / "files.md").read_text()
    rows = {name: told.split("|") for name, told in re.findall(r"^\| `(\w+)` \|(.+)\|$", page, re.M)}
    (heading,) = re.findall(r"^\| capability \|(.+)\|$", page, re.M)
    column = [one.strip() for one in heading.split("|")].index(f"`{kind}:`")
    for name in ("chunk_durable", "search", "many_processes"):
        assert rows[name][column].strip().startswith("yes" if getattr(able, name) else "no"), name
    await store.close()


@both
@pytest.mark.rule("ID-3")
async def test_no_path_is_made_of_an_id_of_another_form(kind: Kind, tmp_path: Path) -> None:
    """Not even by a unit."""
    store = await open_files(kind, tmp_path / "store")
    for id_ in ("../../outside", Mint().session(), "", "x" * 26):
        session = Session(id=id_, agent="assistant", model=MODEL, created_at=1, updated_at=1)
        with pytest.raises(InvalidId):
            await store.commit(Unit(id_, (InsertSession(session),)))
        assert await store.find_session(id_) is None
    assert list((tmp_path / "store" / "sessions").iterdir()) == []
    await store.close()


def test_every_table_has_a_form_in_the_files() -> None:
    """Of the rows that a unit may change, those of a session and those that are shared."""
    assert TABLES.keys() == set(SessionValue.__struct_fields__)
    entries = {name for _, name, _ in TOUCHES}
    assert entries - SHARED_ENTRIES == TABLES.keys() - {"journal", "marks"}
    assert SHARED.keys() - {"accepted"} == SHARED_ENTRIES - {"blob_files"} | {"blobs", "calls"}
    schema = set(re.findall(r"CREATE TABLE (\w+)", read_sql("sqlite/schema.sql")))
    # The journal is taken from the units; the others are derived, of this process, or say something of the cache.
    journal = {"stream_journal", "journal_marks", "search_docs", "search_marks"}
    of_the_store = {"store_marks", "store_losses", "event_log", "adopted_messages", "replicas", "clew_schema"}
    assert schema - journal - of_the_store == {table for table, _, _ in TOUCHES}


@both
async def test_every_unit_is_synced_as_it_asked(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that must survive a loss of power is; with ``durability="power"`` every one is, and so is a file that
    replaces another."""
    synced = 0
    real = os.fsync

    def count(fd: int) -> None:
        nonlocal synced
        synced += 1
        real(fd)

    monkeypatch.setattr(folder, "_sync", count)
    for power in (False, True):
        store = await open_files(kind, tmp_path / f"store-{power}", FilesOptions(every_commit_full=power))
        scribe = await Scribe.create(store)
        await scribe.prompt("hello")
        synced = 0
        await scribe.commit(PatchSession(metadata={"a": 1}))
        assert (synced > 0) == (power or kind == "json")
        synced = 0
        await scribe.commit(PatchSession(metadata={"a": 2}), sync="power")
        assert synced > 0
        await store.close()


@both
async def test_the_end_of_a_step_is_synced_where_it_takes_the_place_of_what_was(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for no sync; but the stream of a `jsonl:` session goes with it, and all of a `json:` one is replaced."""
    synced: list[int] = []
    store = await open_files(kind, tmp_path / "store", FilesOptions())
    scribe = await Scribe.create(store)
    opened = await scribe.prompt("hello")
    recorder = opened.recorder()
    for chunk in reply(step(text("one two")), id=recorder.message.id)[:-1]:
        await recorder.send(chunk)
    await recorder.flush()
    monkeypatch.setattr(folder, "_sync", synced.append)
    await recorder.end_step(RecordStep(opened.step(recorder.message.id, Usage(1, 1))))
    assert synced
    await recorder.close(*opened.settling())
    await store.close()


@both
@pytest.mark.rule("FS-4", "EV-1")
async def test_events_and_triggers_lie_beside_the_sessions_and_come_back(kind: Kind, tmp_path: Path) -> None:
    """A unit that is no session's leaves the sessions alone."""
    url = f"{kind}:{tmp_path}/store"
    async with clew.open(url) as engine:
        taken = await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello")
        schedule = await engine.schedules.add("0 9 * * *", "good morning")
        webhook = await engine.webhooks.add("door")
        await answered(engine, 1)
        events = (await engine.events.list()).events
        assert [one.direction for one in events] == ["out", "in"]
    async with clew.open(url) as engine:
        assert (await engine.events.list()).events == events
        assert await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello") == taken
        assert [one.id for one in await engine.schedules.list()] == [schedule.id]
        assert (await engine.webhooks.get("door")).secret == webhook.secret
        assert len(await engine.messages(taken.session_id)) == 2
        await engine.delete_session(taken.session_id)
        bare = tuple(msgspec.structs.replace(one, data={}) for one in events)
        left = tuple(msgspec.structs.replace(one, turn_id=None) if one.direction == "in" else one for one in bare)
        assert (await engine.events.list()).events == left
    async with clew.open(url) as engine:
        assert (await engine.events.list()).events == left
        assert await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello") == taken


@both
@pytest.mark.rule("EV-1")
async def test_an_event_whose_message_was_lost_to_a_kill_can_be_sent_again(kind: Kind, tmp_path: Path) -> None:
    """It is written first: what a dead process left of it says that it came, and nothing came of it."""
    url = f"{kind}:{tmp_path}/store"
    async with clew.open(url) as engine:
        first = await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello")
        await answered(engine, 1)
    [inbound] = [p for p in (tmp_path / "store/clew/events").iterdir() if b'"in"' in p.read_bytes()]
    lost = json.loads(inbound.read_bytes())
    del lost["check"]
    lost["key"][2] = lost["value"]["source_id"] = "2"
    lost["value"] |= {"message_id": "msg_000000000000" + "0" * 14, "seq": 3}
    (inbound.parent / f"{sha256(orjson.dumps(lost['key'])).hexdigest()}.json").write_text(json.dumps(lost))
    async with clew.open(url) as engine:
        assert {one.source_id for one in (await engine.events.list()).events} == {"1"}
        again = await engine.events.receive("mail", "2", Routing(key="inbox"), text="hello")
        assert (again.session_id, again.message_id) != (first.session_id, lost["value"]["message_id"])
        assert again.session_id == first.session_id


def test_urls_name_folders() -> None:
    """Relative, absolute, with a home; without a name they are refused."""
    assert parse_url("jsonl:store") == Folder("jsonl", Path("store"))
    assert parse_url("json:/folder/store") == Folder("json", Path("/folder/store"))
    assert parse_url("jsonl:///store") == Folder("jsonl", Path("store"))
    assert parse_url("json:////folder") == Folder("json", Path("/folder"))
    assert parse_url("jsonl:~/s") == Folder("jsonl", Path("~/s").expanduser())
    for bad in ("jsonl:", "json:", "json:\x00", "jsonl:///"):
        with pytest.raises(clew.InvalidInput):
            parse_url(bad)


@both
async def test_many_sessions_write_at_once(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its order, none in another's way."""
    monkeypatch.setattr(folder, "_sync", lambda fd: None)
    store: FileStore = await open_files(kind, tmp_path / "store")
    scribes = [await Scribe.create(store) for _ in range(8)]
    await asyncio.gather(*(scribe.turn("hello", text("hi there")) for scribe in scribes for _ in range(1)))
    assert await check(store) == []
    expected = await everything(store)
    await store.close()
    again = await open_files(kind, tmp_path / "store")
    assert await everything(again) == expected
    await again.close()


@pytest.mark.slow
@pytest.mark.rule("FS-1", "FS-2")
async def test_a_stream_file_cut_at_any_byte_gives_what_was_whole_in_it(tmp_path: Path) -> None:
    """Never more, never an error; and nothing of it when the log knows better."""
    store = await open_files("jsonl", tmp_path / "store")
    scribe = await Scribe.create(store)
    opened = await scribe.prompt("go")
    recorder = opened.recorder()
    sizes: dict[int, Any] = {}
    stream = tmp_path / "store" / "sessions" / scribe.session_id / "stream.jsonl"
    for chunk in text("the thread of Ariadne"):
        recorder.write(chunk)
        await recorder.flush()
        sizes[stream.stat().st_size] = await store.load_messages(scribe.session_id)
    whole = stream.read_bytes()
    recorder.abandon()
    await store.close()
    reader = await open_files("jsonl", tmp_path / "store", FilesOptions(read_only=True))
    expected: Any = None
    for cut in range(len(whole) + 1):
        stream.write_bytes(whole[:cut])
        expected = sizes.get(cut + 1, expected)  # a record that lacks but its newline counts
        found = await reader.load_messages(scribe.session_id)
        assert found == (expected or found[:1]), cut
    await reader.close()
