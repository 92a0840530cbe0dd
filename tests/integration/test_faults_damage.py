"""Damaged rows and damaged pages: what is hit is named, everything else stays readable."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from clew.clock import SystemClock
from clew.errors import ClewError, RowUndecodable, StoreError, StoreUnavailable
from clew.ids import Mint
from clew.session.history.check import Problem, check
from clew.store.base import SessionQuery
from clew.store.sql.journal import short_name
from clew.testing.chunks import text
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from tests.integration.sqlite_files import Two, engine_on, path, raw, sqlite_store, two
from tests.rig.child import Child, Orders
from tests.rig.streamer import settle_left_open

__all__ = ["path", "two"]


# Damaged rows

FLIPS = [pytest.param(0x40, 0, id="no JSON"), pytest.param(0x80, 30, id="no UTF-8")]


@pytest.mark.parametrize(("mask", "offset"), FLIPS)
async def test_a_flipped_byte_in_a_part_costs_that_part(two: Two, mask: int, offset: int) -> None:
    """The message shows a stand-in, a strict read names the part, the judge too, and nothing else is affected."""
    two.flip(b'{"type":"text","text":"spoken by the damaged', mask, offset)
    part_id = two.part_id(2)
    async with engine_on(two.path) as engine:
        shown = (await engine.messages(two.damaged))[1]
        assert shown.parts[:2] == two.parts[:2]
        assert shown.parts[2]["type"] == "data-damaged"
        assert shown.parts[2]["data"]["part_id"] == part_id
        reason = "it was changed after it had settled: its seal does not match"
        assert shown.parts[3:] == [{"type": "data-damaged", "data": {"message_id": two.message_id, "reason": reason}}]
        for read in (engine.store.load_messages, engine.store.load_line):
            with pytest.raises(RowUndecodable) as caught:
                await read(two.damaged)
            assert caught.value.ids == {"message_id": two.message_id, "part_id": part_id, "index": 2}
        problems = await check(engine.store)
        assert [(problem.session_id, problem.id) for problem in problems] == [
            (two.damaged, part_id),
            (two.damaged, two.message_id),
        ]
        await two.others_work(engine)


async def test_a_flip_that_leaves_the_json_valid_is_caught_by_the_seal(two: Two) -> None:
    """Nobody could tell by looking at the part alone."""
    two.flip(b"spoken by the damaged", 0x01)
    async with engine_on(two.path) as engine:
        shown = (await engine.messages(two.damaged))[1]
        assert shown.parts[2] == {**two.parts[2], "text": "rpoken by the damaged session"}
        assert shown.metadata["damaged"] == "it was changed after it had settled: its seal does not match"
        assert await check(engine.store) == [
            Problem("it was changed after it had settled: its seal does not match", two.damaged, two.message_id)
        ]
        await two.others_work(engine)


@pytest.mark.parametrize(
    ("mask", "offset"), [pytest.param(0x40, 0, id="no JSON"), pytest.param(0x80, 14, id="no UTF-8")]
)
async def test_a_flipped_byte_in_a_sessions_metadata_leaves_the_list_working(two: Two, mask: int, offset: int) -> None:
    """The damaged session keeps its place and says so; a strict look at it names it."""
    two.flip(b'{"title":"the damaged one"}', mask, offset)
    async with engine_on(two.path) as engine:
        found = {session.id: session.metadata for session in (await engine.list_sessions()).sessions}
        assert found == {two.damaged: {"damaged": True}, two.sound: {"title": "the sound one"}}
        with pytest.raises(RowUndecodable) as caught:
            await engine.get_session(two.damaged)
        assert caught.value.ids == {"session_id": two.damaged}
        assert two.damaged in {problem.session_id for problem in await check(engine.store)}
        await two.others_work(engine)


@pytest.mark.parametrize(
    ("mask", "offset"), [pytest.param(0x40, 0, id="no JSON"), pytest.param(0x80, 5, id="no UTF-8")]
)
async def test_a_flipped_byte_in_a_messages_metadata_costs_that_metadata(two: Two, mask: int, offset: int) -> None:
    """Its parts are still shown."""
    with raw(two.path) as connection:
        query = "SELECT metadata_json FROM chat_messages WHERE id = ?"
        metadata: str = connection.execute(query, (two.message_id,)).fetchone()[0]
        connection.execute("UPDATE chat_messages SET metadata_json = '{}' WHERE id <> ?", (two.message_id,))
        connection.execute("VACUUM")
    two.flip(metadata.encode(), mask, offset)
    async with engine_on(two.path) as engine:
        shown = (await engine.messages(two.damaged))[1]
        assert shown.parts == two.parts
        assert shown.metadata["damaged"] is True
        with pytest.raises(RowUndecodable) as caught:
            await engine.store.load_messages(two.damaged)
        assert caught.value.ids == {"session_id": two.damaged, "message_id": two.message_id}
        assert (two.damaged, two.message_id) in {
            (problem.session_id, problem.id) for problem in await check(engine.store)
        }


@pytest.mark.slow
@pytest.mark.parametrize("mask", [pytest.param(0x40, id="no JSON"), pytest.param(0x80, id="no UTF-8")])
async def test_a_damaged_journal_row_is_told_in_clear_words_and_the_rest_stays_readable(path: Path, mask: int) -> None:
    """Whatever opening for writing does, it does not crash; the sessions that were not streaming are there."""
    hold = Orders(store=f"sqlite:///{path}", stage="hold", streams=1)
    with Child(hold) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    async with sqlite_store(path) as store:
        # Minted later than the child's, so that the next child goes on with its own session.
        clock = FakeClock(1_900_000_000_000)
        scribe = await Scribe.create(store, clock=clock)
        await scribe.turn("hello", text("unharmed"))
        left = Scribe(store, next(iter(child.streams.values())).session_id, Mint(clock), clock)
        await settle_left_open(left)
    with Child(hold) as child:
        child.wait_until(lambda child: child.staged)
        child.kill()
    assert {stream.session_id for stream in child.streams.values()} == {left.session_id}
    with raw(path) as connection:
        query = "SELECT n, CAST(data AS BLOB) FROM stream_journal ORDER BY n DESC LIMIT 1"
        n, data = connection.execute(query).fetchone()
        damaged = bytearray(data)
        damaged[0] ^= mask
        connection.execute("UPDATE stream_journal SET data = CAST(? AS TEXT) WHERE n = ?", (bytes(damaged), n))
    async with sqlite_store(path) as store:
        assert await check(store) != []
    async with sqlite_store(path, read_only=True) as store:
        listed = await store.list_sessions(SessionQuery())
        assert [session.id for session in listed.sessions] == [scribe.session_id, left.session_id]
        assert [len(row.parts) for row in await store.load_messages(scribe.session_id)] == [1, 2]
        with pytest.raises(StoreError):
            await store.load_messages(left.session_id)
        assert [(problem.session_id, problem.id) for problem in await check(store)] == [
            (left.session_id, next(iter(child.streams)))
        ]


@pytest.mark.rule("ST-14")
async def test_a_damaged_journal_row_says_nothing_of_a_message_that_has_ended(path: Path) -> None:
    """Rows of it wait for those before them to go; its seal says that it is whole, and recovery leaves it so."""
    async with sqlite_store(path) as store:
        streaming, ended = [await Scribe.create(store) for _ in range(2)]
        growing = (await streaming.prompt("go on")).recorder()
        for chunk in text("so far", open=True):
            growing.write(chunk)
            await growing.flush()
        opened = await ended.prompt("hello")
        recorder = opened.recorder()
        for chunk in text("all of it"):
            recorder.write(chunk)
            await recorder.flush()
        await recorder.close(*opened.settling())
        growing.abandon()
    with raw(path) as connection:
        held = connection.execute("SELECT n, data FROM stream_journal").fetchall()
        last = max(n for n, data in held if str(short_name(recorder.message.id)) in data)
        connection.execute("UPDATE stream_journal SET data = 'garbage' WHERE n = ?", [last])
    async with engine_on(path) as engine:
        told = {problem.id for problem in await check(engine.store)}
        assert told == {growing.message.id}
        row = await engine.store.find_message(ended.session_id, recorder.message.id)
        assert row is not None
        assert (row.damage, row.texts) == (None, ["all of it"])


# Damaged pages


def overwrite_page(path: Path, table: str) -> None:
    """Put garbage over the page a table begins at."""
    with raw(path) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        number = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(Random(number).randbytes(size))


async def test_a_page_of_garbage_is_reported_and_reading_it_is_an_error_not_a_crash(two: Two) -> None:
    """Sessions are still listed; what lies on the page cannot be had; the judge says that the file is damaged."""
    overwrite_page(two.path, "chat_parts")
    async with engine_on(two.path) as engine:
        assert {session.id for session in (await engine.list_sessions()).sessions} == {two.damaged, two.sound}
        for session_id in (two.damaged, two.sound):
            with pytest.raises(StoreUnavailable, match="damaged"):
                await engine.messages(session_id)
        assert list(await engine.store.verify()) != []
        problems = await check(engine.store)
        assert {problem.session_id for problem in problems} == {None, two.damaged, two.sound}
        # Once more: a connection that met the damage is as good as new.
        assert {session.id for session in (await engine.list_sessions()).sessions} == {two.damaged, two.sound}


async def test_writing_into_a_page_of_garbage_stops_writing_and_leaves_reading(two: Two) -> None:
    """From the first sign of damage on nothing more is written, whoever asks."""
    overwrite_page(two.path, "chat_parts")
    async with engine_on(two.path) as engine:
        scribe = Scribe(engine.store, two.sound, Mint(), SystemClock())
        with pytest.raises(StoreUnavailable):
            await scribe.prompt("hello")
        with pytest.raises(StoreUnavailable, match="read-only now"):
            await engine.rename_session(two.damaged, "another title")
        assert {session.title for session in (await engine.list_sessions()).sessions} == {
            "the damaged one",
            "the sound one",
        }


async def test_a_file_whose_first_page_is_garbage_is_refused(two: Two) -> None:
    """It is no database any more: said so, and never replaced by an empty one."""
    two.path.write_bytes(b"\xa5" * 4096 + two.path.read_bytes()[4096:])
    before = two.path.read_bytes()
    for read_only in (False, True):
        with pytest.raises(StoreUnavailable):
            async with engine_on(two.path, read_only=read_only):
                raise AssertionError("it was opened")
    assert two.path.read_bytes() == before


async def look_at_all(two: Two) -> tuple[list[Problem], dict[str, Any]]:
    """What the judge finds and what a user sees; a session that cannot be read counts as a problem."""
    async with engine_on(two.path) as engine:
        problems = await check(engine.store)
        seen: dict[str, Any] = {}
        for session_id in (two.damaged, two.sound):
            try:
                seen |= {message.id: message.parts for message in await engine.messages(session_id)}
            except ClewError as error:
                if not problems:
                    raise AssertionError(f"{error!r}, and the judge is content") from error
        return problems, seen


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16), ids=lambda seed: f"seed-{seed}")
async def test_a_bit_flipped_anywhere_is_reported_or_harmless(two: Two, seed: int) -> None:
    """Whatever byte of the file it hits: only clew's own errors, and no settled answer that changed unseen."""
    random = Random(seed)
    pristine = two.path.read_bytes()
    # Most of a small file is empty; the places that hold something are the ones worth hitting.
    places = [place for place, byte in enumerate(pristine) if place >= 100 and byte]
    truth = {two.message_id: two.parts, two.sound_messages[1].id: two.sound_messages[1].parts}
    for _ in range(20):
        place, bit = random.choice(places), random.randrange(8)
        data = bytearray(pristine)
        data[place] ^= 1 << bit
        two.path.write_bytes(data)
        try:
            problems, seen = await look_at_all(two)
        except ClewError:
            continue
        except Exception as error:
            raise AssertionError(f"byte {place}, bit {bit}: {error!r}") from error
        assert problems or {id_: seen.get(id_) for id_ in truth} == truth, f"byte {place}, bit {bit}: changed unseen"
