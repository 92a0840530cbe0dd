"""A database that cannot hold a store as it is: what is wrong with it is said in a sentence, and what to do."""

from __future__ import annotations

import asyncio
import time

import psycopg
import pytest

import clew
from clew.errors import StoreUnavailable
from clew.store.sql.postgres import connection as c
from clew.store.sql.postgres import writer as w
from clew.store.sql.postgres.opening import open_postgres
from clew.store.unit import Committed, PatchSession, Unit
from tests.integration.test_postgres import opened, session_on
from tests.services.postgres import Postgres

pytestmark = [pytest.mark.service, pytest.mark.rule("ST-12")]


def name_of(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (
            "create table chat_parts (id int)",
            r"contains tables of another program \(chat_parts\); choose another database$",
        ),
        (
            "create table x (id int); create index chat_messages_by_session on x (id); create view blobs as select 1",
            r"contains tables of another program \(chat_messages_by_session, blobs\); choose another database$",
        ),
        (
            "create table schema_versions (version text)",
            r"contains tables of another program \(schema_versions\); choose another database$",
        ),
        (
            "create table schema_versions (number int, additive bool)",
            r"does not record its version of clew \(schema_versions is empty\); restore a dump into an empty "
            "database, or choose another one$",
        ),
    ],
)
async def test_a_database_with_tables_that_are_not_clews_is_told_and_left_alone(
    database: str, made: str, told: str
) -> None:
    """Whatever of them has a name that clew would use."""
    with psycopg.connect(database, autocommit=True) as other:
        other.execute(made.encode())
        relations = "select relname from pg_class where relnamespace = 'public'::regnamespace order by 1"
        before = other.execute(relations).fetchall()
        with pytest.raises(StoreUnavailable, match=told):
            async with clew.open(database):
                pass
        assert other.execute(relations).fetchall() == before


async def test_a_store_whose_version_was_lost_is_told_and_left_alone(postgres_store_url: str) -> None:
    """Emptied by hand: nobody knows what is missing in it."""
    with psycopg.connect(postgres_store_url, autocommit=True) as other:
        other.execute("delete from schema_versions")
        with pytest.raises(StoreUnavailable, match=r"does not record its version of clew \(schema_versions is empty\)"):
            await open_postgres(postgres_store_url)
        assert other.execute("select count(*) from schema_versions").fetchone() == (0,)


@pytest.mark.parametrize("path", ["''", "nowhere"])
async def test_a_database_without_a_schema_to_use_is_told_how_one_is_set(
    postgres: Postgres, database: str, path: str
) -> None:
    """An empty search path, or one that names what is not there."""
    postgres.ask(f"alter database {name_of(database)} set search_path = {path}")
    with pytest.raises(
        StoreUnavailable,
        match=r"has no schema for tables \(search_path names none that exists\); set one: "
        r"ALTER DATABASE … SET search_path = public$",
    ):
        async with clew.open(database):
            pass


async def test_a_limit_on_how_long_a_statement_takes_is_told_by_its_name(
    postgres: Postgres, postgres_store_url: str
) -> None:
    """While a store is opened, in a unit and in a read; without it the store goes on."""
    told = (
        r"cancelled a statement \(.*\); check that statement_timeout is long enough: "
        r"ALTER DATABASE … SET statement_timeout = 0$"
    )
    name = name_of(postgres_store_url)
    async with opened(postgres_store_url) as store:
        scribe = await session_on(store)
        with psycopg.connect(postgres_store_url) as other:
            postgres.ask(f"alter database {name} set statement_timeout = '50ms'")
            # Connections that are there keep what they had.
            question = "select pg_terminate_backend(pid) from pg_stat_activity where datname = %s and pid <> %s"
            postgres.ask(question, name, other.info.backend_pid)
            other.execute("lock table session_state, chat_sessions in access exclusive mode")
            with pytest.raises(StoreUnavailable, match=told):
                await store.find_session(scribe.session_id)
            with pytest.raises(StoreUnavailable, match=told):
                await scribe.commit(PatchSession({"title": "x"}))
            other.rollback()
        assert await scribe.try_commit(PatchSession({"title": "x"})) == Committed()
    postgres.ask(f"alter database {name} set statement_timeout = 0")
    with psycopg.connect(postgres_store_url) as other:
        other.execute("lock table schema_versions in access exclusive mode")
        postgres.ask(f"alter database {name} set statement_timeout = '50ms'")
        with pytest.raises(StoreUnavailable, match=told):
            await open_postgres(postgres_store_url)


@pytest.mark.rule("RP-4", "ST-3")
async def test_a_unit_of_a_process_that_was_stopped_in_it_is_done_when_it_goes_on(
    postgres: Postgres, postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has ended its transaction meanwhile: nothing of it was written, and it is written now, once."""
    statement, names = c.QUERIES["bound_waits"]
    monkeypatch.setitem(c.QUERIES, "bound_waits", (statement.replace("'5s', true)", "'20ms', true)", 1), names))
    async with opened(postgres_store_url) as store:
        scribe = await session_on(store)
        ended: list[int] = []

        def count() -> int:
            log = (postgres.folder / "log").read_text(errors="replace")
            return log.count("terminating connection due to idle-in-transaction timeout")

        # Counted before the transaction begins: on a busy machine its 20 ms are over as soon as it stands still.
        before = count()

        def stopped(point: str) -> None:
            if point == "writer.in_transaction" and not ended:
                while count() == before:
                    time.sleep(0.005)
                ended.append(1)

        monkeypatch.setattr(w, "failpoint", stopped)
        titled = Unit(scribe.session_id, (PatchSession({"title": "kept"}),))
        assert await asyncio.wait_for(store.commit(titled), 60) == Committed()
        assert ended == [1]
        session = await store.find_session(scribe.session_id)
        assert session is not None
        assert session.metadata == {"title": "kept"}
    # Where the server's word for it arrives before its end of the line does.
    assert c.is_cut_off(psycopg.errors.IdleInTransactionSessionTimeout())
