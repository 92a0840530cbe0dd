"""Migrations: from whatever version a file is, it ends as a fresh one begins, and a kill in between costs nothing."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from signal import SIGKILL
from typing import Any

import msgspec
import orjson
import pytest

from clew.errors import OwnedByAnotherProcess, StoreUnavailable
from clew.failpoints import FailpointRaised, arm, disarm
from clew.ids import Mint
from clew.store.base import SearchHit, SearchPage, SearchQuery
from clew.store.file_lock import FileLock, _descriptors
from clew.store.owner import OwnerLock
from clew.store.sql.sqlite.migrate import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION, statements
from clew.store.sql.sqlite.opening import SqliteOptions, open_sqlite
from clew.store.sql.statements import read_sql
from clew.store.unit import Committed, DeleteSession, Unit
from clew.transcript.damage import seal_of
from clew.triggers.values.ledger import EventQuery, LedgerEvent
from tests.rig.child import Child, Orders
from tests.rig.old_store import make_old_store

pytestmark = pytest.mark.rule("ST-7")

VERSIONS = range(1, SCHEMA_VERSION)


def describe(path: Path) -> dict[str, Any]:
    """All that makes up a schema: the statements, without their white space, and what SQLite made of them."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        found: dict[str, Any] = {
            f"{kind} {name}": (table, re.sub(r" ([),])", r"\1", re.sub(r"\s+", " ", sql or "").replace("( ", "(")))
            for kind, name, table, sql in rows
        }
        for kind, name, _, _ in rows:
            if kind == "table":
                for pragma in ("table_xinfo", "foreign_key_list"):
                    found[f"{pragma} {name}"] = connection.execute(f"PRAGMA {pragma}({name})").fetchall()
                indexes = connection.execute(f"PRAGMA index_list({name})").fetchall()
                # The first column numbers the indexes by when they were made, which may differ.
                found[f"index_list {name}"] = sorted(index[1:] for index in indexes)
                for index in indexes:
                    found[f"index_xinfo {index[1]}"] = connection.execute(f"PRAGMA index_xinfo({index[1]})").fetchall()
        for pragma in ("user_version", "application_id"):
            found[pragma] = connection.execute(f"PRAGMA {pragma}").fetchone()[0]
        return found


def version(path: Path) -> int:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        found: int = connection.execute("PRAGMA user_version").fetchone()[0]
        return found


async def open_and_close(path: Path) -> None:
    await (await open_sqlite(path)).close()


async def fresh_schema(folder: Path) -> dict[str, Any]:
    await open_and_close(folder / "fresh.db")
    return describe(folder / "fresh.db")


def add_sessions(path: Path, count: int) -> list[str]:
    """Sessions as any version knows them."""
    mint = Mint()
    ids = [mint.session() for _ in range(count)]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executemany(
            "INSERT INTO chat_sessions (id, agent, model_json, created_at, updated_at)"
            """ VALUES (?, 'assistant', '{"provider_id":"demo","model_id":"echo"}', 1, 1)""",
            [(id_,) for id_ in ids],
        )
    return ids


async def session_ids(path: Path) -> list[str]:
    store = await open_sqlite(path, SqliteOptions(read_only=True))
    try:
        return list(await store.session_ids())
    finally:
        await store.close()


@pytest.mark.parametrize("old", VERSIONS)
async def test_a_migrated_file_has_the_schema_of_a_fresh_one(tmp_path: Path, old: int) -> None:
    """Every table, column, key and index, and the version number; from each version there ever was."""
    make_old_store(tmp_path / "old.db", old)
    before = describe(tmp_path / "old.db")
    await open_and_close(tmp_path / "old.db")
    after = describe(tmp_path / "old.db")
    assert before != after
    assert after == await fresh_schema(tmp_path)
    assert (after["user_version"], after["application_id"]) == (SCHEMA_VERSION, APPLICATION_ID)


@pytest.mark.parametrize("old", VERSIONS)
async def test_no_migration_takes_a_column_away(tmp_path: Path, old: int) -> None:
    """What a version wrote, every later one can read."""

    def columns(path: Path) -> set[tuple[str, str]]:
        schema = describe(path)
        return {(key, column[1]) for key, rows in schema.items() if key.startswith("table_xinfo ") for column in rows}

    make_old_store(tmp_path / "old.db", old)
    make_old_store(tmp_path / "next.db", old + 1)
    assert columns(tmp_path / "old.db") <= columns(tmp_path / "next.db")


def test_migrations_are_numbered_without_a_gap() -> None:
    """The number of a file is the version it leads to."""
    assert [int(name.partition("_")[0]) for name in MIGRATIONS] == list(range(1, SCHEMA_VERSION + 1))


@pytest.mark.parametrize("name", ["schema.sql", *(f"migrations/{name}" for name in MIGRATIONS)])
def test_a_script_is_taken_apart_into_all_its_statements(name: str) -> None:
    """Joined again they are the script, so nothing of it is left out when it runs statement by statement."""
    script = read_sql(f"sqlite/{name}")
    bare = re.sub(r"\s+", "", re.sub(r"^\s*--.*$", "", script, flags=re.MULTILINE))
    assert re.sub(r"\s+", "", "".join(statements(script))) == bare


async def test_opening_an_up_to_date_file_again_changes_nothing_in_it(tmp_path: Path) -> None:
    """Byte for byte."""
    path = tmp_path / "store.db"
    await open_and_close(path)
    before = path.read_bytes()
    await open_and_close(path)
    assert path.read_bytes() == before


async def test_what_an_older_version_wrote_is_found_by_a_search(tmp_path: Path) -> None:
    """From version 3 on messages are sealed; the first search after the migration takes them in."""
    path = tmp_path / "store.db"
    make_old_store(path, 3)
    [session_id] = add_sessions(path, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO chat_messages VALUES ('msg_1', ?, 'user', '{}', 5, 5)", (session_id,))
        part = {"type": "text", "text": "a thimble"}
        connection.execute(
            "INSERT INTO chat_parts VALUES ('prt_1', 'msg_1', ?, 0, 'text', ?, NULL, NULL, 5, 5)",
            (session_id, orjson.dumps(part).decode()),
        )
        connection.execute("INSERT INTO message_seals VALUES ('msg_1', ?)", (seal_of([part]),))
    store = await open_sqlite(path)
    hit = SearchHit(session_id, "msg_1", "prt_1", None, "a **thimble**", False, "user", 5)
    assert await store.search(SearchQuery("thimble")) == SearchPage((hit,), None, total=1)
    await store.close()


@pytest.mark.rule("EV-4")
async def test_the_ledger_of_an_older_version_comes_along_and_outlives_its_session_from_then_on(tmp_path: Path) -> None:
    """Each row as a first attempt; what was open is open."""
    path = tmp_path / "store.db"
    make_old_store(path, 13)
    [session_id] = add_sessions(path, 1)
    columns = "id, direction, source, source_id, session_id, type, status, digest, data_json, at"
    given = [
        ("evt_1", "in", "mail", "1", session_id, "push", None, "d1", '{"text":"one"}', 5),
        ("evt_2", "out", "mail", "1", session_id, None, "failed", None, '{"text":""}', 6),
        ("evt_3", "in", "mail", "2", session_id, None, None, "d3", '{"text":"two"}', 7),
    ]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("INSERT INTO session_state (session_id) VALUES (?)", (session_id,))
        connection.executemany(f"INSERT INTO ledger_events ({columns}) VALUES ({', '.join('?' * 10)})", given)
    store = await open_sqlite(path)
    common: Any = {"source": "mail", "session_id": session_id, "message_id": None}
    one = LedgerEvent(id="evt_1", direction="in", source_id="1", type="push", digest="d1", at=5, seq=1, **common)
    out = LedgerEvent(id="evt_2", direction="out", source_id="1", status="failed", at=6, seq=2, **common)
    two = LedgerEvent(id="evt_3", direction="in", source_id="2", digest="d3", at=7, seq=3, **common)
    said = [msgspec.structs.replace(row, data={"text": text}) for row, text in ((two, "two"), (out, ""), (one, "one"))]
    assert (await store.list_events(EventQuery())).events == tuple(said)
    assert await store.open_events() == (said[0],)
    assert await store.commit(Unit(session_id, (DeleteSession(),))) == Committed()
    assert (await store.list_events(EventQuery())).events == (two, out, one)
    assert await store.open_events() == ()
    await store.close()


# Interrupted


@pytest.mark.kill
@pytest.mark.parametrize("point", ["migrate.before_step", "migrate.before_commit"])
@pytest.mark.parametrize("old", [1, SCHEMA_VERSION // 2])
async def test_a_file_killed_between_or_within_steps_is_brought_up_to_date_by_the_next_start(
    tmp_path: Path, old: int, point: str
) -> None:
    """Killed at the last step, killed again at whatever is then the first, and opened: all rows, the fresh schema."""
    path = tmp_path / "store.db"
    make_old_store(path, old)
    ids = add_sessions(path, 3)
    last = SCHEMA_VERSION - old
    for nth, expected in ((last, SCHEMA_VERSION - 1), (1, SCHEMA_VERSION - 1)):
        with Child(Orders(store=f"sqlite:///{path}"), failpoints=f"{point}=kill@{nth}") as child:
            assert child.wait() == -SIGKILL, child.how_it_ended()
        assert not child.ready
        assert version(path) == expected
    await open_and_close(path)
    assert describe(path) == await fresh_schema(tmp_path)
    assert await session_ids(path) == ids


@pytest.mark.parametrize("point", ["migrate.before_step", "migrate.before_commit"])
async def test_a_step_that_fails_is_rolled_back_and_the_file_let_go(tmp_path: Path, point: str) -> None:
    """Without a kill: the error comes out, the version before stands whole, and the file can be opened again."""
    path = tmp_path / "store.db"
    make_old_store(path, 1)
    make_old_store(tmp_path / "second.db", 2)
    ids = add_sessions(path, 2)
    arm(f"{point}=raise@2")
    try:
        with pytest.raises(FailpointRaised):
            await open_and_close(path)
    finally:
        disarm()
    assert describe(path) == describe(tmp_path / "second.db")
    await open_and_close(path)
    assert await session_ids(path) == ids
    assert describe(path) == await fresh_schema(tmp_path)


# Two at once


@pytest.mark.slow
@pytest.mark.rule("ST-9")
@pytest.mark.parametrize("old", [0, 1])
@pytest.mark.parametrize("attempt", range(3))
async def test_of_two_processes_starting_at_once_one_wins_and_the_other_is_told(
    tmp_path: Path, old: int, attempt: int
) -> None:
    """On a path where nothing is yet, and on an old file: the schema is made once, and whole."""
    path = tmp_path / "store.db"
    if old:
        make_old_store(path, old)
    orders = Orders(store=f"sqlite:///{path}", seed=attempt, stage="hold", streams=1, wait=True)
    with Child(orders) as one, Child(orders) as other:
        for child in (one, other):
            child.wait_until(lambda child: child.up)
        for child in (one, other):
            child.go_on()
        for child in (one, other):
            child.wait_until(lambda child: child.staged or child.refusal is not None)
        [winner] = [child for child in (one, other) if child.staged]
        [loser] = [child for child in (one, other) if child.refusal]
        assert loser.refusal is not None
        assert loser.refusal.code == OwnedByAnotherProcess.code
        # The winner may have the lock and not have written its name yet.
        assert loser.refusal.ids in ({"pid": str(winner.pid)}, {})
        assert loser.wait() == 3
        winner.go_on()
        assert winner.wait() == 0
    assert describe(path) == await fresh_schema(tmp_path)


@pytest.mark.rule("ST-9")
@pytest.mark.parametrize("half_made", [b"SQLite format 3\0 and no more", b"tables and no version"])
async def test_a_file_its_owner_is_still_making_is_owned_and_not_of_another_program(
    tmp_path: Path, half_made: bytes
) -> None:
    """The second to come may look between two writes of the first: what it sees says nothing, the lock says all."""
    path = tmp_path / "store.db"
    if half_made.startswith(b"SQLite"):
        path.write_bytes(half_made)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE sessions(id TEXT)")
    before = path.read_bytes()
    maker = OwnerLock(FileLock(path), path, 0)
    with pytest.raises(OwnedByAnotherProcess):
        await open_and_close(path)
    maker.release()
    with pytest.raises(StoreUnavailable):
        await open_and_close(path)
    OwnerLock(FileLock(path), path, 0).release()
    assert path.read_bytes() == before


@pytest.mark.rule("ST-9")
def test_a_lock_that_is_released_is_free_though_a_child_has_its_handle_still(tmp_path: Path) -> None:
    """A program that is just being started has a copy of every handle until it runs."""
    path = tmp_path / "store.db"
    lock = OwnerLock(FileLock(path, make=True), path, 0)
    copied = [os.dup(lock._fd), os.dup(_descriptors[lock._file.file])]
    lock.release()
    OwnerLock(FileLock(path), path, 0).release()
    for fd in copied:
        os.close(fd)


@pytest.mark.rule("ST-13")
async def test_a_prompt_that_was_cancelled_before_is_hidden_from_other_readers(tmp_path: Path) -> None:
    """Whoever knows only the three tables would take it for said."""
    path = tmp_path / "old.db"
    make_old_store(path, 12)
    (session_id,) = add_sessions(path, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for id_, metadata in (("cancelled", '{"cancelled_at":7,"cancelled_why":"no"}'), ("other", '{"k":1}')):
            row = (id_, session_id, metadata)
            connection.execute("INSERT INTO chat_messages VALUES (?, ?, 'user', ?, 1, 1)", row)
    await open_and_close(path)
    with closing(sqlite3.connect(path)) as connection:
        found = dict(connection.execute("SELECT id, metadata_json FROM chat_messages"))
    assert {id_: orjson.loads(metadata) for id_, metadata in found.items()} == {
        "cancelled": {"cancelled_at": 7, "cancelled_why": "no", "hidden_at": 7, "hidden_by": "cancelled"},
        "other": {"k": 1},
    }
