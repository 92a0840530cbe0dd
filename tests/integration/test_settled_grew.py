"""A settled message that grew is found, by the judge and by ``clew check``."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from clew.fronts.cli.app import run_command
from clew.ids import Mint
from clew.session.acquire.recovery import recover
from clew.session.history.check import check
from clew.store.base import Store
from clew.store.files.opening import open_files
from clew.store.sql.sqlite.memory import MemoryStore
from clew.store.sql.sqlite.opening import open_sqlite
from clew.store.unit import AppendChunks, JournalEntry, PutParts, Unit
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.transcript.chunk import parse_chunk
from clew.transcript.message import PartRow
from tests.integration.sqlite_files import path, raw, sqlite_store

__all__ = ["path"]

pytestmark = pytest.mark.rule("ST-9")


async def store_of(kind: str, folder: Path) -> Store:
    if kind == "memory":
        return MemoryStore()
    return await (open_sqlite(folder / "store.db") if kind == "sqlite" else open_files("jsonl", folder / "store"))


async def interrupted(store: Store) -> tuple[Scribe, str]:
    """A session whose run died in the middle of a text, settled by whoever opened the store next; and its message."""
    scribe = await Scribe.create(store)
    recorder = (await scribe.prompt("hello")).recorder()
    start, delta, *_ = text("82 words")
    for chunk in (start, delta):
        recorder.write(chunk)
    await recorder.flush()
    recorder.abandon()
    await recover(store, Mint(), scribe.clock.now_ms() + 1)
    return scribe, recorder.message.id


@pytest.mark.parametrize("kind", ["memory", "sqlite", "jsonl"])
async def test_a_superseded_run_that_writes_on_is_seen(kind: str, tmp_path: Path) -> None:
    """In the journal as well as in the parts, where the seal of the recovery tells."""
    store = await store_of(kind, tmp_path)
    scribe, message_id = await interrupted(store)
    assert await check(store) == []
    assert message_id in await store.seals(scribe.session_id)
    more = parse_chunk({"type": "text-delta", "id": "t1", "delta": " and 600 more"})
    mark = (await store.load_tail(scribe.session_id, message_id)).last
    await store.commit(Unit(scribe.session_id, (AppendChunks(message_id, (JournalEntry(mark + 1, 0, more),)),)))
    [problem] = [found for found in await check(store) if "journal" in found.what]
    assert (problem.what, problem.id) == (
        "it grew after its turn had settled: the journal has more of it",
        message_id,
    )
    row = await store.find_message(scribe.session_id, message_id)
    assert row is not None
    longer = PartRow(row.parts[0].id, 0, {**row.parts[0].data, "text": "600 words"}, 1, scribe.clock.now_ms())
    await store.commit(Unit(scribe.session_id, (PutParts(message_id, (longer,)),)))
    assert "it was changed after it had settled: its seal does not match" in [one.what for one in await check(store)]
    await store.close()


def test_the_command_line_says_so_of_a_store_that_was_harmed_before(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no seal was set, the time at which it was written to tells."""
    for name in ("CONFIG", "DATA"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(path.parent / name))

    async def harm() -> str:
        async with sqlite_store(path) as store:
            return (await interrupted(store))[1]

    message_id = asyncio.run(harm())
    with raw(path) as connection:
        connection.execute("DELETE FROM message_seals WHERE message_id = ?", [message_id])
        connection.execute("UPDATE store_marks SET sealed_since = 1 << 62")  # as in a file of an older version
    words = ["check", "--store", f"sqlite:///{path}"]
    assert run_command(words) == 0
    with raw(path) as connection:
        connection.execute("UPDATE chat_parts SET updated_at = updated_at + 5000 WHERE message_id = ?", [message_id])
    capsys.readouterr()
    assert run_command(words) == 7
    assert f"{message_id}: it grew after its turn had settled: it was changed later" in capsys.readouterr().out
