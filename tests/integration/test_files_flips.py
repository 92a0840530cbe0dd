"""One flipped bit anywhere in a folder of sessions: what is read is what was written, or says that it is not.

A share of all bits; ``CLEW_ROUNDS`` makes it larger. The campaign of the same name also looks at what a model is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from clew.errors import ClewError, RowUndecodable, SchemaTooNew, StoreUnavailable
from clew.ids import Mint
from clew.store.base import FullSession
from clew.store.files import folder
from clew.store.files.codec import format_note
from clew.store.files.crc import check_of
from clew.store.files.metadata import read_metadata, unknown_keys
from clew.store.files.opening import FilesOptions, open_files
from clew.store.files.store import FileStore
from clew.store.unit import (
    STORE_WIDE,
    AddEvent,
    Enqueue,
    InsertMessage,
    PutBlob,
    PutProjectRules,
    PutPrompt,
    PutSchedule,
    Unit,
)
from clew.testing.chunks import text
from clew.testing.scribe import Scribe, user_row
from clew.transcript.line import line_messages
from clew.triggers.values.ledger import LedgerEvent
from clew.triggers.values.schedule import Schedule
from tests.rounds import rounds

from .test_files_store import SHA, Kind, both

FLIPS = rounds(40)
PROMPT = "You are a guide through the labyrinth."
DIGEST = sha256(PROMPT.encode()).hexdigest()
RULES = ({"permission": "bash", "pattern": "rm *", "action": "deny"},)


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


async def fill(kind: Kind, root: Path) -> None:
    """Two sessions, one of them in the middle of an answer, and an entry of every shared table."""
    store = await open_files(kind, root)
    other, scribe = await Scribe.create(store), await Scribe.create(store)
    for one in (other, scribe):
        for prompt in ("harbour", "and then?"):
            await one.turn(prompt, text(f"{prompt} it is, by the thread"))
    waiting = user_row(scribe.mint, scribe.session_id, "later", 7)
    await scribe.commit(InsertMessage(waiting), Enqueue(waiting.id, 7))
    given: Any = {"source": "mail", "source_id": "1", "session_id": scribe.session_id, "message_id": waiting.id}
    event = LedgerEvent(id=Mint().event(), direction="in", at=5, **given)
    await scribe.commit(
        AddEvent(event),
        PutBlob(SHA, "text/plain", b"file", 1),
        PutPrompt(DIGEST, PROMPT, 1),
        PutProjectRules("/project", RULES, 1),
    )
    await store.commit(Unit(STORE_WIDE, (PutSchedule(Schedule(id="s", cron="0 9 * * *", prompt="go", created_at=1)),)))
    if kind == "jsonl":
        recorder = (await scribe.prompt("go")).recorder()
        for chunk in text("the thread of Ariadne"):
            recorder.write(chunk)
            await recorder.flush()
        recorder.abandon()
    await store.close()


async def shared(store: FileStore) -> dict[str, Any]:
    """What is not one session's; an error where it does not read."""
    found: dict[str, Any] = {"schedules": await store.list_schedules(), "prompt": await store.find_prompt(DIGEST)}
    for name, reading in (
        ("blob", store.find_blob(SHA)),
        ("rules", store.load_project_rules("/project")),
        ("event", store.find_event("in", "mail", "1")),
    ):
        try:
            found[name] = await reading
        except RowUndecodable as error:
            found[name] = error
    return found


def judge(truth: FullSession, whole: FullSession, named: set[str | None]) -> None:
    """What is shown of a session is the truth, or says that it is not, and the store names it."""
    if whole == truth:
        return
    assert truth.session.id in named
    if whole.session.title == "(damaged)":
        assert (whole.messages, whole.damaged != ()) == ((), True)
        return
    known = {row.id: row for row in truth.messages}
    for row in whole.messages:
        was = known[row.id]
        assert [part.data for part in row.parts] == [part.data for part in was.parts] or "damaged" in row.metadata
    on_line = [message_id for _, message_id in line_messages(whole.tree)]
    assert on_line == [message_id for _, message_id in line_messages(truth.tree)]


def files(root: Path) -> dict[Path, bytes]:
    found = (path for path in sorted(root.rglob("*")) if path.is_file() and path.name != "store.owner")
    return {path: path.read_bytes() for path in found}


@both
@pytest.mark.rule("ST-14", "FS-5")
async def test_a_flipped_bit_is_never_taken_for_what_was_written(
    kind: Kind, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """In any file: other sessions are not harmed, and opening the store for writing changes nothing of it."""
    root = tmp_path / "store"
    await fill(kind, root)
    store = await open_files(kind, root)
    truths = {id_: await store.find_full_session(id_) for id_ in await store.session_ids()}
    beside = await shared(store)
    assert (await store.verify(), len(truths)) == ((), 2)
    await store.close()
    whole = files(root)
    random = Random(11)
    for n in range(FLIPS):
        path = random.choice(list(whole)) if n % 2 else random.choices(list(whole), [len(d) for d in whole.values()])[0]
        bit = random.randrange(len(whole[path]) * 8)
        harmed = bytearray(whole[path])
        harmed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(harmed)
        at = f"round {n}: {path.relative_to(root)} byte {bit // 8} bit {bit % 8}"
        try:
            await look(kind, root, truths, beside, read_only=n % 3 == 0)
        except (StoreUnavailable, SchemaTooNew):
            assert path.name == "format.json", at
        except AssertionError as error:
            raise AssertionError(at) from error
        left = {one: data for one, data in files(root).items() if one.stem != "cache"}
        kept = [one for one in left if one not in whole]
        if kept:  # the list's file follows from the log: it was made anew, and what was there is kept beside
            assert (path.name, [left.pop(one) for one in kept]) == ("metadata.json", [bytes(harmed)]), at
            kept[0].unlink()
        rewritten = {one for one, data in left.items() if data != (whole | {path: bytes(harmed)})[one]}
        assert rewritten <= ({path} if path.name == "metadata.json" else set()), at
        path.write_bytes(whole[path])
    record_property("figure", f"flipped bits, {kind}: {FLIPS} of {sum(map(len, whole.values())) * 8}, 0 without a word")


@pytest.mark.rule("ST-14", "FS-7")
async def test_no_flipped_bit_in_metadata_becomes_a_key_of_another_program(tmp_path: Path) -> None:
    """Every bit of the file: it does not read, or nothing more is carried into the session than before."""
    root = tmp_path / "store"
    await fill("jsonl", root)
    whole = next(iter(sorted(root.glob("sessions/*/metadata.json")))).read_bytes()
    truth = read_metadata(whole)
    assert truth is not None
    assert unknown_keys(truth, truth["id"]) == {}
    for bit in range(len(whole) * 8):
        harmed = bytearray(whole)
        harmed[bit // 8] ^= 1 << bit % 8
        read = read_metadata(bytes(harmed))
        if read is not None and "clew" in read:
            assert unknown_keys(read, truth["id"]) == {}, bit
    # Written again by the next opening, while the name is still wrong.
    changed = whole.replace(b"createdAt", b"breatedAt")
    path = next(iter(sorted(root.glob("sessions/*/metadata.json"))))
    path.write_bytes(changed)
    for _ in range(2):
        store = await open_files("jsonl", root)
        found = await store.find_full_session(truth["id"])
        assert found is not None
        assert "file_keys" not in found.session.metadata
        await store.close()
    # A checked file that says less than clew writes is read as it is.
    for own in ({}, {"session": None}, {"session": {"metadata": None}}):
        said = {"breatedAt": "x", "clew": own, "check": check_of(own)}
        assert read_metadata(orjson.dumps(said)) == said
    # Another program's key that differs from an optional one of clew's only by case is its own.
    assert unknown_keys({**truth, "cronJobID": "7"}, truth["id"]) == {"cronJobID": "7"}


@both
@pytest.mark.parametrize("version", [None, 1, 2])
@pytest.mark.rule("ST-14", "FS-5")
async def test_no_flipped_bit_makes_a_folder_one_of_another_version(
    kind: Kind, version: int | None, tmp_path: Path
) -> None:
    """Any bit of what it says of itself: it is refused with what to do, and nothing of it is changed. Notes of older
    versions have no check; from none of those a bit leads to another one that there was."""
    root = tmp_path / "store"
    await (await open_files(kind, root)).close()
    note = root / "clew" / "format.json"
    if version is not None:
        note.write_bytes(b'{"format":"%s","version":%d}\n' % (kind.encode(), version))
    whole = files(root)
    for bit in range(len(whole[note]) * 8):
        harmed = bytearray(whole[note])
        harmed[bit // 8] ^= 1 << bit % 8
        note.write_bytes(harmed)
        for read_only in (True, False):
            with pytest.raises((StoreUnavailable, SchemaTooNew)) as refused:
                await open_files(kind, root, FilesOptions(read_only=read_only))
            assert isinstance(refused.value, StoreUnavailable) or version is not None, bit
            assert ("bring it back from a backup" in str(refused.value)) == (refused.type is StoreUnavailable), bit
        assert files(root) == {**whole, note: bytes(harmed)}, bit
    note.write_bytes(whole[note])
    await (await open_files(kind, root)).close()
    assert note.read_bytes() == format_note(kind)


@both
@pytest.mark.parametrize("end", [b"", b"\r\n", b"\n\n", b" \t\n"])
async def test_how_the_line_ends_that_a_folder_says_of_itself_harms_nothing(
    kind: Kind, end: bytes, tmp_path: Path
) -> None:
    """As where a program has copied the folder and changed its line ends: it is read, and written as it was."""
    root = tmp_path / "store"
    await (await open_files(kind, root)).close()
    note = root / "clew" / "format.json"
    copied = format_note(kind).removesuffix(b"\n") + end
    note.write_bytes(copied)
    found = []
    for read_only in (True, False):
        await (await open_files(kind, root, FilesOptions(read_only=read_only))).close()
        found.append(note.read_bytes())
    assert found == [copied, format_note(kind)]


async def look(kind: Kind, root: Path, truths: dict[str, Any], beside: dict[str, Any], *, read_only: bool) -> None:
    store = await open_files(kind, root, FilesOptions(read_only=read_only))
    try:
        damages = await store.verify()
        named = {damage.session_id for damage in damages}
        assert set(await store.session_ids()) == set(truths)
        assert len(named - {None}) <= 1
        for session_id, truth in truths.items():
            found = await store.find_full_session(session_id)
            assert found is not None
            judge(truth, found, named)
        for name, value in (await shared(store)).items():
            if value != beside[name]:
                assert None in named, name
                assert isinstance(value, ClewError) or not value, (name, value)
    finally:
        await store.close()
