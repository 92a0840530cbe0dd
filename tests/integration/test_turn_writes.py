"""What a turn costs the file: statements and pages are counted, and what the writer remembers is held against it."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from bench.append import Appender, turns_of
from bench.fill import add_sessions
from clew.ids import Mint
from clew.store.sql import rows
from clew.store.sql.sqlite.connection import SqliteStatements
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.sqlite.store import SqliteStore
from clew.store.sql.write_buffer import Turns
from clew.store.unit import (
    DeleteSession,
    InsertSession,
    LinkMessage,
    MoveHead,
    OpenTurn,
    PatchSession,
    RecordStep,
    SetTurn,
    Unit,
    Write,
)
from clew.testing.chunks import text
from clew.testing.scribe import Scribe, settled, user_row
from clew.transcript.turn import Turn
from clew.transcript.usage import Usage

pytestmark = pytest.mark.rule("ST-15")
FRAME = 24 + 4096
STILL = SqliteOptions(checkpoints=False)


async def appender(path: Path) -> Appender:
    """A session to append turns to, in a store whose log only grows."""
    store, mint = await open_sqlite(path, STILL), Mint()
    return Appender(store, mint, await add_sessions(store, mint, 1, lambda _: {}))


@contextlib.asynccontextmanager
async def opened(path: Path, options: SqliteOptions) -> AsyncIterator[SqliteStore]:
    store = await open_sqlite(path, options)
    try:
        yield store
    finally:
        await store.close()


def remembered(store: SqliteStore) -> Turns:
    assert store._writer is not None
    return store._writer.transactions.units._turns


def frames(path: Path) -> int:
    return path.with_name(path.name + "-wal").stat().st_size // FRAME


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Every named statement from now on."""
    counted: Counter[str] = Counter()
    for kind in ("run", "many", "first", "rows"):
        original = getattr(SqliteStatements, kind)

        def count(self: Any, name: str, params: Any, original: Any = original) -> Any:
            counted[name] += 1
            return original(self, name, params)

        monkeypatch.setattr(SqliteStatements, kind, count)
    return counted


async def test_a_turn_names_each_row_once(tmp_path: Path, statements: Counter[str]) -> None:
    """Two commits: the prompt, and the whole answer. Nothing is read, and no row is written twice in one of them."""
    turns = await appender(tmp_path / "store.db")
    for turn in turns_of(range(3)):
        statements.clear()
        await turns.turn(*turn)
    counted = dict(statements)
    await turns.close()
    once = ("insert_turn", "touch_session", "insert_step", "set_turn", "add_move", "book_session")
    each = ("insert_message", "insert_new_part", "insert_link", "insert_seal", "set_state", "set_commits")
    assert counted == dict.fromkeys(once, 1) | dict.fromkeys(each, 2)


@pytest.mark.slow
async def test_a_turn_writes_as_many_pages_in_a_long_session_as_in_a_short_one(tmp_path: Path) -> None:
    """And not twice as many as the three tables alone take: 26."""
    path = tmp_path / "store.db"
    turns = await appender(path)
    pages: list[float] = []
    for block in (range(100), range(100, 140), range(140, 260), range(260, 300)):
        before = frames(path)
        for turn in turns_of(block):
            await turns.turn(*turn)
        pages.append((frames(path) - before) / len(block))
    await turns.close()
    assert max(pages) < 48
    assert pages[3] < pages[1] * 1.1


async def test_a_text_that_grows_leaves_the_index_of_calls_as_it_is(tmp_path: Path, statements: Counter[str]) -> None:
    """To fold it anew writes the row and nothing else; a call whose state changes goes the longer way."""
    async with opened(tmp_path / "store.db", STILL) as store:
        scribe = await Scribe.create(store)
        turn = await scribe.prompt("hello")
        recorder = turn.recorder()
        for chunk in [*text("a " * 1300, open=True)]:
            await recorder.send(chunk)
            await recorder.flush()
        assert statements["grow_part"] > statements["update_part"] == statements["insert_part"] == 1
        await recorder.close(*turn.settling())


async def kept(store: SqliteStore, path: Path) -> None:
    """What the writer remembers of turns is what the file says."""
    turns = remembered(store)
    for turn in list(turns._turns.values()):
        found = await store.find_turn(turn.id)
        assert found is not None
        assert rows.turn_params(found) == rows.turn_params(turn)
    with contextlib.closing(sqlite3.connect(path)) as file:
        linked = dict(file.execute("SELECT turn_id, count(*) FROM turn_messages GROUP BY turn_id"))
    assert turns._linked == {turn_id: linked.get(turn_id, 0) for turn_id in turns._linked}


async def test_what_another_program_wrote_counts_and_not_what_was_remembered(tmp_path: Path) -> None:
    """Depth, links and times are read anew once somebody else has committed."""
    path = tmp_path / "store.db"
    async with opened(path, STILL) as store:
        scribe = await Scribe.create(store)
        first, _, _ = await scribe.turn("one", text("two"))
        now = scribe.clock.now_ms() + 1000
        await scribe.commit(PatchSession(updated_at=now))
        with contextlib.closing(sqlite3.connect(path)) as other, other:
            other.execute("UPDATE chat_turns SET depth = 7 WHERE id = ?", [first])
            other.execute("UPDATE turn_messages SET position = position + 5 WHERE turn_id = ?", [first])
            other.execute("UPDATE chat_sessions SET updated_at = 1")
        note = user_row(scribe.mint, scribe.session_id, "beside", now)
        below = Turn(id="trn_below", session_id=scribe.session_id, parent_turn_id=first, created_at=now)
        link = LinkMessage(first, note.id)
        await scribe.commit(*settled(note), link, OpenTurn(below), PatchSession(updated_at=now))
        with contextlib.closing(sqlite3.connect(path)) as file:
            assert file.execute("SELECT depth FROM chat_turns WHERE id = 'trn_below'").fetchall() == [(8,)]
            assert file.execute("SELECT position FROM turn_messages ORDER BY position").fetchall() == [(5,), (6,), (7,)]
        assert (await scribe.session()).updated_at == now
        await kept(store, tmp_path / "store.db")


async def test_a_unit_that_fails_leaves_nothing_remembered(tmp_path: Path) -> None:
    """Units of one group share a transaction; those beside the failing one are written again, and no more."""
    async with opened(tmp_path / "store.db", SqliteOptions(window_ms=30)) as store:
        scribe = await Scribe.create(store)
        turn = await scribe.prompt("hello")
        step = turn.step("msg_nowhere", Usage(1))
        bad = Unit(scribe.session_id, (SetTurn(turn.id, "completed", settled_at=5), RecordStep(step)))
        good = Unit(scribe.session_id, (SetTurn(turn.id, None, data={"seen": True}), PatchSession(updated_at=10**13)))
        outcomes = await asyncio.gather(store.submit(good), store.submit(bad), return_exceptions=True)
        assert [type(one).__name__ for one in outcomes] == ["Committed", "InternalError"]
        found = await store.find_turn(turn.id)
        assert found is not None
        assert (found.status, found.data) == ("running", {"seen": True})
        assert (await scribe.session()).updated_at == 10**13
        await kept(store, tmp_path / "store.db")


async def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    """Only the newest turns, and none with much in it."""
    async with opened(tmp_path / "store.db", STILL) as store:
        scribe = await Scribe.create(store)
        ids = [f"trn_{n:04}" for n in range(400)]
        for n, id_ in enumerate(ids):
            data = {"much": "x" * 5000} if n % 3 == 0 else {}
            turn = Turn(id=id_, session_id=scribe.session_id, parent_turn_id=None, created_at=n, status="aborted")
            await scribe.commit(OpenTurn(turn), SetTurn(id_, None, data=data))
        turns = remembered(store)._turns
        assert len(turns) <= 256
        assert not any("much" in turn.data for turn in turns.values())
        await kept(store, tmp_path / "store.db")


@pytest.mark.parametrize("much", [0, 5000], ids=["many", "large"])
async def test_a_unit_may_come_back_to_any_turn_that_it_has_opened(tmp_path: Path, much: int) -> None:
    """As an import does, which is one unit however long the session is: more turns than are remembered, or larger."""
    async with opened(tmp_path / "store.db", STILL) as store:
        scribe = await Scribe.create(store)
        ids = [f"trn_{n:04}" for n in range(20 if much else 300)]
        writes: list[Write] = []
        for n, id_ in enumerate(ids):
            turn = Turn(
                id=id_,
                session_id=scribe.session_id,
                parent_turn_id=ids[n // 2] if n else None,
                created_at=n,
                status="aborted",
                data={"much": "x" * much},
            )
            row = user_row(scribe.mint, scribe.session_id, id_, n)
            writes += [*settled(row), OpenTurn(turn), LinkMessage(id_, row.id)]
        note = user_row(scribe.mint, scribe.session_id, "beside", 1)
        again = [SetTurn(ids[0], None, data={"seen": True}), *settled(note), LinkMessage(ids[0], note.id)]
        await scribe.commit(*writes, *again, *(MoveHead(id_, 1, "goto") for id_ in ids))
        tree = await store.load_tree(scribe.session_id)
        assert [tree.turns[id_].depth for id_ in ids] == [n.bit_length() for n in range(len(ids))]
        assert tree.turns[ids[0]].data == {"much": "x" * much, "seen": True}
        assert [len(tree.links[id_]) for id_ in ids] == [2, *[1] * (len(ids) - 1)]
        assert [move.to_turn_id for move in tree.moves] == ids
        await kept(store, tmp_path / "store.db")


async def test_a_session_that_is_deleted_and_comes_back_is_dated_anew(tmp_path: Path) -> None:
    """It may be older than what was remembered of the one before it, and is moved all the same."""
    async with opened(tmp_path / "store.db", STILL) as store:
        scribe = await Scribe.create(store)
        before = await scribe.session()
        await scribe.commit(PatchSession(updated_at=10**13))
        await scribe.commit(DeleteSession())
        await scribe.commit(InsertSession(before))
        await scribe.commit(PatchSession(updated_at=10**13 - 1))
        assert (await scribe.session()).updated_at == 10**13 - 1


@pytest.mark.slow
async def test_the_log_is_written_over_where_commits_are_synced_and_not_grown(tmp_path: Path) -> None:
    """It holds what a hundred or so synced commits wrote, however many there were."""
    path = tmp_path / "store.db"
    store, mint = await open_sqlite(path, SqliteOptions()), Mint()
    turns = Appender(store, mint, await add_sessions(store, mint, 1, lambda _: {}))
    for turn in turns_of(range(250)):
        await turns.turn(*turn)
    longest = frames(path)
    await turns.close()
    assert longest < 160 * 25
