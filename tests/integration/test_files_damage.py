"""A damaged session, entry or attachment of a file store: it is seen, it is named, and nobody else is harmed by it."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.errors import RowUndecodable, StoreUnavailable
from clew.ids import Mint
from clew.session.history.check import check
from clew.store.base import SessionQuery
from clew.store.files import folder
from clew.store.files.opening import FilesOptions, open_files
from clew.store.unit import (
    DeleteSession,
    LinkBlob,
    PatchMessage,
    PutBlob,
    PutParts,
    PutProjectRules,
    SealMessage,
    Unit,
)
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.testing.scripted import FakeProviders, ScriptedModel
from clew.testing.scripted import say as scripted
from clew.transcript.metadata import local_place
from clew.triggers.values.ledger import EventQuery
from clew.triggers.values.routing import Routing
from tests.acceptance.triggered import answered
from tests.integration.http_client import served
from tests.integration.test_cli_history import Say, say

from .test_files_store import SHA, Kind, both

__all__ = ["say"]

NOTE = b"the thread is red\n" * 9
RULE = {"permission": "bash", "pattern": "rm *", "action": "deny"}


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


def file_of(root: Path, kind: Kind, session_id: str) -> Path:
    place = root / "sessions"
    return place / session_id / "session.jsonl" if kind == "jsonl" else place / f"{session_id}.json"


def flip(path: Path, word: bytes) -> None:
    """One bit of the last letter of this word, where it stands last."""
    data = bytearray(path.read_bytes())
    data[data.rindex(word) + len(word) - 1] ^= 1
    path.write_bytes(data)


def held(root: Path) -> dict[str, bytes]:
    """Every file of the folder but the owner's mark and what is worked out from the others."""
    files = (path for path in root.rglob("*") if path.is_file() and path.name != "store.owner")
    files = (path for path in files if path.stem != "cache")
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@both
@pytest.mark.rule("FS-5")
async def test_while_a_session_does_not_read_its_attachments_and_events_stay(kind: Kind, tmp_path: Path) -> None:
    """Opening and closing the store, and deleting another session with the same file, takes nothing from it."""
    url = f"{kind}:{tmp_path}"
    attachment = {"type": "file", "mediaType": "text/plain", "url": f"data:text/plain;base64,{_base64(NOTE)}"}
    async with clew.open(url) as engine:
        hurt = await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello")
        await answered(engine, 1)
        other = await engine.create_session(model="demo/echo", metadata=local_place(None))
        for session_id in (hurt.session_id, other.id):
            async for _ in engine.run(session_id, [attachment], model="demo/echo"):
                pass
    whole = held(tmp_path)
    path = file_of(tmp_path, kind, hurt.session_id)
    path.write_bytes(b"\x00" * 64 + path.read_bytes()[64:])
    if kind == "jsonl":
        (path.parent / "metadata.json").write_bytes(b"{")
    broken = held(tmp_path)
    async with clew.open(url):
        pass
    assert held(tmp_path) == broken
    async with clew.open(url) as engine:
        await engine.delete_session(other.id)
        blob = await engine.store.find_blob(sha256(NOTE).hexdigest())
        assert blob is not None
        assert blob.data == NOTE
    kept = {name for name in whole if name.startswith(("clew/prompts", "clew/blobs", "clew/events"))}
    assert kept <= held(tmp_path).keys()
    for name, data in whole.items():
        if hurt.session_id in name:
            (tmp_path / name).write_bytes(data)
    async with clew.open(url) as engine:
        assert [event.source_id for event in (await engine.events.list()).events] == ["1", "1"]
        blob = await engine.store.find_blob(sha256(NOTE).hexdigest())
        assert blob is not None
        assert blob.data == NOTE
        assert await check(engine.store) == []


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@both
@pytest.mark.rule("FS-5")
async def test_with_no_session_there_at_all_nothing_is_collected(kind: Kind, tmp_path: Path) -> None:
    """A folder that lost its sessions is no folder whose attachments nobody names."""
    store = await open_files(kind, tmp_path / "store")
    scribe = await Scribe.create(store)
    await scribe.commit(PutBlob(SHA, "text/plain", b"file", 1))
    await store.close()
    [place] = (tmp_path / "store" / "sessions").iterdir()
    place.rename(tmp_path / place.name)
    await (await open_files(kind, tmp_path / "store")).close()
    (tmp_path / place.name).rename(place)
    store = await open_files(kind, tmp_path / "store")
    assert (await store.find_blob(SHA)) is not None
    await store.close()


@both
@pytest.mark.rule("ST-14", "FS-5")
async def test_a_changed_letter_is_not_shown_as_what_was_said(kind: Kind, tmp_path: Path) -> None:
    """Over HTTP: the message says that it is damaged, the others are as they were, and the file is as it was."""
    url = f"{kind}:{tmp_path}"
    async with clew.open(url) as engine:
        session = await engine.create_session(model="demo/echo", metadata=local_place(None))
        for prompt in ("harbour", "labyrinth"):
            async for _ in engine.run(session.id, prompt):
                pass
        before = await engine.messages(session.id)
    path = file_of(tmp_path, kind, session.id)
    flip(path, b'"text":"harbour')
    broken = held(tmp_path)
    async with served(store=url) as client:
        found = await client.messages(session.id)
        [hurt] = [message for message in found if "damaged" in message["metadata"]]
        assert "data-damaged" in [part["type"] for part in hurt["parts"]]
        assert "harbous" not in json.dumps(found)
        others = [message for message in found if message is not hurt]
        assert [message["parts"] for message in others] == [one.parts for one in before if one.id != hurt["id"]]
        assert [message["id"] for message in found] == [message.id for message in before]
    assert held(tmp_path) == broken


@pytest.mark.rule("ST-14", "FS-3")
async def test_a_json_session_with_a_damaged_message_goes_on_and_the_file_is_kept(tmp_path: Path) -> None:
    """What was read is written; what was not stays as it was, beside; and both are still named."""
    store = await open_files("json", tmp_path)
    scribe = await Scribe.create(store)
    for prompt in ("harbour", "labyrinth"):
        await scribe.turn(prompt, text(f"{prompt} it is"))
    await store.close()
    path = file_of(tmp_path, "json", scribe.session_id)
    flip(path, b"harbour it is")
    broken = path.read_bytes()
    for n in range(2):
        store = await open_files("json", tmp_path)
        scribe = Scribe(store, scribe.session_id, Mint(), scribe.clock)
        await scribe.turn(f"thread {n}", text("yes"))
        named = {damage.session_id for damage in await store.verify()}
        rows = await store.load_messages(scribe.session_id, keep_damaged=True)
        await store.close()
        assert named == {scribe.session_id}
        assert ["damaged" in row.metadata for row in rows] == [False, True] + [False] * (4 + 2 * n)
    assert [kept.read_bytes() for kept in (tmp_path / "clew" / "damaged").iterdir()] == [broken]
    store = await open_files("json", tmp_path)
    await store.commit(Unit(scribe.session_id, (DeleteSession(),)))
    await store.close()
    assert list((tmp_path / "clew" / "damaged").iterdir()) == []


@pytest.mark.rule("ST-14", "FS-5")
async def test_a_stream_with_a_lost_line_is_kept_and_its_message_says_so(tmp_path: Path) -> None:
    """What the parts held is shown; the next run ends it, and the mark stays when the stream file has gone."""
    store = await open_files("jsonl", tmp_path)
    scribe = await Scribe.create(store)
    recorder = (await scribe.prompt("go")).recorder()
    for chunk in text("the thread of Ariadne"):
        recorder.write(chunk)
        await recorder.flush()
    recorder.abandon()
    await store.close()
    stream = tmp_path / "sessions" / scribe.session_id / "stream.jsonl"
    lines = stream.read_bytes().splitlines(keepends=True)
    assert len(lines) > 4
    [*_, place] = [place for place, line in enumerate(lines) if b"Ariadne" in line]
    lines[place] = lines[place].replace(b"Ariadne", b"Ariadna")
    stream.write_bytes(b"".join(lines))
    broken = stream.read_bytes()
    async with clew.open(f"jsonl:{tmp_path}") as engine:
        [_, answer] = await engine.messages(scribe.session_id)
        assert "damaged" in answer.metadata
        assert "Ariadna" not in json.dumps(answer.parts)
    assert not stream.exists()
    assert [kept.read_bytes() for kept in (tmp_path / "clew" / "damaged").iterdir()] == [broken]
    async with clew.open(f"jsonl:{tmp_path}") as engine:
        [_, again] = await engine.messages(scribe.session_id)
        assert "damaged" in again.metadata


@both
@pytest.mark.rule("ST-14")
async def test_bytes_that_are_not_those_of_their_digest_are_not_given_out(kind: Kind, tmp_path: Path) -> None:
    """An error says which file; whoever brings the same bytes again mends it."""
    store = await open_files(kind, tmp_path)
    scribe = await Scribe.create(store)
    await scribe.commit(PutBlob(SHA, "text/plain", b"file", 1))
    await store.close()
    [path] = (tmp_path / "clew" / "blobs").glob("*.bin")
    flip(path, b"i")
    async with served(store=f"{kind}:{tmp_path}") as client:
        answer = await client.get(f"/api/blobs/{SHA}")
        assert (answer.status, answer.json()["code"]) == (500, "row_undecodable")
    store = await open_files(kind, tmp_path)
    with pytest.raises(RowUndecodable):
        await store.find_blob(SHA)
    await store.commit(Unit(scribe.session_id, (PutBlob(SHA, "text/plain", b"file", 1),)))
    blob = await store.find_blob(SHA)
    assert blob is not None
    assert (blob.data, await store.verify()) == (b"file", ())
    await store.close()


@both
@pytest.mark.rule("ST-14")
async def test_a_damaged_attachment_is_not_sent_and_the_session_goes_on(kind: Kind, tmp_path: Path) -> None:
    """The model is told that it is left out."""
    url = f"{kind}:{tmp_path}"
    attachment = {"type": "file", "mediaType": "text/plain", "url": f"data:text/plain;base64,{_base64(NOTE)}"}
    model = ScriptedModel([scripted("read"), scripted("as I said")])
    async with clew.open(url, config=clew.Config(), providers=FakeProviders(model)) as engine:
        session = await engine.create_session(metadata=local_place(None))
        async for _ in engine.run(session.id, [attachment]):
            pass
    [path] = (tmp_path / "clew" / "blobs").glob("*.bin")
    flip(path, b"red")
    async with clew.open(url, config=clew.Config(), providers=FakeProviders(model)) as engine:
        async for _ in engine.run(session.id, "and?"):
            pass
        assert len(await engine.messages(session.id)) == 4
    parts = [part for message in model.requests[-1].messages for part in message.parts if message.role == "user"]
    sent = [part for part in parts if not str(part.get("text")).startswith("[When this was sent:]")]
    left_out = "[a file of type text/plain is missing or damaged where it is stored, and is left out.]"
    assert [part.get("text") for part in sent] == [left_out, "and?"]


@both
@pytest.mark.rule("ST-14")
def test_check_names_an_attachment_that_is_missing(kind: Kind, tmp_path: Path, say: Say) -> None:
    """By its digest, with the session that names it."""

    async def fill() -> str:
        store = await open_files(kind, tmp_path / "store")
        scribe = await Scribe.create(store)
        await scribe.commit(PutBlob(SHA, "text/plain", b"file", 1))
        await store.close()
        return scribe.session_id

    session_id = asyncio.run(fill())
    for path in (tmp_path / "store" / "clew" / "blobs").iterdir():
        path.unlink()
    code, out, _ = say("check", "--store", f"{kind}:{tmp_path}/store")
    assert (code, f"{session_id} {SHA}: a file that it names is missing" in out) == (7, True)


@both
@pytest.mark.rule("ST-14", "FS-5")
async def test_an_entry_that_does_not_read_is_named_left_alone_and_not_taken_for_absent(
    kind: Kind, tmp_path: Path
) -> None:
    """Rules that do not read allow nothing; an event that does not read is not taken a second time."""
    async with clew.open(f"{kind}:{tmp_path}") as engine:
        first = await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello")
        await answered(engine, 1)
        await engine.store.commit(Unit(first.session_id, (PutProjectRules("/project", (RULE,), 1),)))
    [rules] = (tmp_path / "clew" / "rules").iterdir()
    [event] = [path for path in (tmp_path / "clew" / "events").iterdir() if b'"in"' in path.read_bytes()]
    flip(rules, b"deny")
    flip(event, b"inbox") if b"inbox" in event.read_bytes() else flip(event, b"mail")
    broken = held(tmp_path)
    async with clew.open(f"{kind}:{tmp_path}") as engine:
        with pytest.raises(RowUndecodable):
            await engine.store.load_project_rules("/project")
        with pytest.raises(RowUndecodable):
            await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello")
        named = [damage.what for damage in await engine.store.verify()]
        assert sorted(what.split("/")[1] for what in named) == ["events", "rules"]
    assert held(tmp_path) == broken


@both
@pytest.mark.rule("FS-5", "EV-1")
async def test_an_answer_that_went_out_and_does_not_read_is_not_given_again(kind: Kind, tmp_path: Path) -> None:
    """Opening the store would otherwise take it for an event that nothing came of."""
    async with clew.open(f"{kind}:{tmp_path}") as engine:
        await engine.events.receive("mail", "1", Routing(key="inbox"), text="hello")
        await answered(engine, 1)
    [out] = [path for path in (tmp_path / "clew" / "events").iterdir() if b'["out"' in path.read_bytes()]
    flip(out, b'"mail')
    broken = held(tmp_path)
    async with clew.open(f"{kind}:{tmp_path}") as engine:
        assert [event.direction for event in (await engine.events.list()).events] == ["in"]
    assert held(tmp_path) == broken


@both
@pytest.mark.rule("ST-14")
async def test_an_input_output_error_is_not_called_a_full_disk(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said is what the system said; nothing of the unit is there."""
    store = await open_files(kind, tmp_path)
    scribe = await Scribe.create(store)

    def fails(fd: int, data: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fails)
        with pytest.raises(StoreUnavailable, match=os.strerror(errno.EIO)):
            await scribe.prompt("lost")
    assert (await store.load_messages(scribe.session_id, keep_damaged=True), await store.verify()) == ((), ())
    await store.close()


@both
@pytest.mark.rule("FS-5")
async def test_a_damaged_session_harms_no_other(kind: Kind, tmp_path: Path) -> None:
    """It is listed and named; the others are read, written and deleted as ever, and it is not written over."""
    store = await open_files(kind, tmp_path)
    bad, good = await Scribe.create(store), await Scribe.create(store)
    for scribe in (bad, good):
        await scribe.turn("hello", text("hi"))
        await scribe.commit(PutBlob(SHA, "text/plain", b"file", 1) if scribe is bad else LinkBlob(SHA))
    expected = await store.find_full_session(good.session_id)
    await store.close()
    path = file_of(tmp_path, kind, bad.session_id)
    path.write_bytes(path.read_bytes()[: -len(path.read_bytes()) // 3])
    broken = path.read_bytes()
    for read_only in (True, False):
        store = await open_files(kind, tmp_path, FilesOptions(read_only=read_only))
        assert await store.find_full_session(good.session_id) == expected
        assert {one.id for one in (await store.list_sessions(SessionQuery())).sessions} == {
            bad.session_id,
            good.session_id,
        }
        assert {damage.session_id for damage in await store.verify()} == {bad.session_id}
        await store.close()
    store = await open_files(kind, tmp_path)
    good = Scribe(store, good.session_id, Mint(), good.clock)
    await good.turn("again", text("yes"))
    await store.commit(Unit(good.session_id, (DeleteSession(),)))
    assert (await store.list_events(EventQuery())).events == ()
    assert (await store.find_blob(SHA)) is not None
    await store.close()
    assert path.read_bytes() == broken


@both
@pytest.mark.rule("ST-14")
async def test_a_damaged_message_that_was_accepted_is_as_it_was_accepted(kind: Kind, tmp_path: Path) -> None:
    """What is written of it then stands for it, at every load; what did not read stays named."""
    store = await open_files(kind, tmp_path)
    scribe = await Scribe.create(store)
    for prompt in ("harbour", "labyrinth"):
        await scribe.turn(prompt, text(f"{prompt} it is"))
    await store.close()
    flip(file_of(tmp_path, kind, scribe.session_id), b'"text":"harbour it is')
    store = await open_files(kind, tmp_path)
    [row] = [
        row for row in await store.load_messages(scribe.session_id, keep_damaged=True) if "damaged" in row.metadata
    ]
    seal = SealMessage(row.id, row.seal)
    accept = (PutParts(row.id, row.parts), seal, PatchMessage(row.id, 9, {"accepted": 9}, ("damaged",)))
    await store.commit(Unit(scribe.session_id, accept))
    accepted = await store.load_messages(scribe.session_id, keep_damaged=True)
    await store.close()
    store = await open_files(kind, tmp_path)
    assert await store.load_messages(scribe.session_id, keep_damaged=True) == accepted
    assert [row.id for row in accepted if "accepted" in row.metadata] == [row.id]
    assert {damage.session_id for damage in await store.verify()} == {scribe.session_id}
    await store.close()


@both
@pytest.mark.rule("ST-14", "FS-5")
async def test_a_loss_is_named_until_somebody_accepts_it_and_then_things_are_collected_again(
    kind: Kind, tmp_path: Path
) -> None:
    """One by one; a session of which nothing reads is no loss that could be accepted."""
    store = await open_files(kind, tmp_path)
    scribe, other = await Scribe.create(store), await Scribe.create(store)
    await scribe.turn("harbour", text("harbour it is"))
    await store.close()
    path = file_of(tmp_path, kind, scribe.session_id)
    flip(path, b'"why":"turn' if kind == "jsonl" else b'"updatedAt":"20')
    store = await open_files(kind, tmp_path)
    await store.commit(Unit(other.session_id, (PutBlob(SHA, "text/plain", b"file", 1),)))
    await store.commit(Unit(other.session_id, (DeleteSession(),)))
    assert (await store.find_blob(SHA)) is not None
    losses = await store.losses()
    assert await store.verify() == losses != ()
    assert {str(loss.id)[:5] for loss in losses} == {"loss-"}
    assert await store.accept_loss("loss-00000000", 5) is False
    for loss in losses:
        assert await store.accept_loss(str(loss.id), 5) is True
    assert (await store.losses(), await store.verify()) == ((), ())
    await store.close()
    store = await open_files(kind, tmp_path)
    assert (await store.losses(), await store.verify(), await store.find_blob(SHA)) == ((), (), None)
    await store.close()
    path.write_bytes(b"")
    (path.parent / "metadata.json").write_bytes(b"") if kind == "jsonl" else None
    store = await open_files(kind, tmp_path)
    assert (await store.losses(), len(await store.verify())) == ((), 1)
    await store.close()
