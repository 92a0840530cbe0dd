"""A database of any version of the format becomes one of this version, the same as a new one."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from clew.store.sql.postgres import opening as migrating
from clew.store.sql.postgres.connection import connect
from clew.store.sql.postgres.opening import FIRST_VERSION, MIGRATIONS, SCHEMA_VERSION, migrate
from tests.services.postgres import Postgres

pytestmark = [pytest.mark.service, pytest.mark.rule("ST-12", "RP-5")]

FIRST = Path(__file__).with_name("postgres_0020.sql")
"""What the first release with PostgreSQL made. It never changes: there are databases like it."""
CATALOG = """
    select 'column', table_name || '.' || column_name, data_type || coalesce(collation_name, '') || is_nullable
        || coalesce(column_default, '') from information_schema.columns where table_schema = 'public'
    union all select 'index', indexname, indexdef from pg_indexes where schemaname = 'public'
    union all select 'trigger', tgname, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
    union all select 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(oid) from pg_constraint
        where connamespace = 'public'::regnamespace
    union all select 'function', proname, pg_get_functiondef(oid) from pg_proc
        where pronamespace = 'public'::regnamespace
    union all select 'view', viewname, definition from pg_views where schemaname = 'public'
    union all select 'option', relname, array_to_string(reloptions, ',') from pg_class
        where relnamespace = 'public'::regnamespace and reloptions is not null
    order by 1, 2, 3
"""


def told(url: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(CATALOG).fetchall()


def test_a_database_of_the_first_version_becomes_what_a_new_one_is(postgres: Postgres, postgres_store_url: str) -> None:
    """Columns, indexes, triggers, functions and all; and each version it went through is noted."""
    name = postgres.create()
    try:
        with psycopg.connect(postgres.url(name)) as first:
            first.execute(FIRST.read_text().encode())
            first.execute("insert into schema_versions (number, additive) values (%s, true)", (FIRST_VERSION,))
        connection = connect(postgres.url(name))
        migrate(connection, postgres.url(name))
        connection.commit()
        noted = connection.execute("SELECT number FROM schema_versions ORDER BY number").fetchall()
        connection.close()
        assert [number for (number,) in noted] == [FIRST_VERSION, *MIGRATIONS]
        assert told(postgres.url(name)) == told(postgres_store_url)
    finally:
        postgres.drop(name)


def test_a_migration_gives_way_to_whoever_is_at_work_and_is_done_all_the_same(
    postgres_store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has one table and waits for the other, and somebody the other way round: theirs goes through, then its own."""
    adds = "ALTER TABLE chat_sessions ADD COLUMN mood TEXT; ALTER TABLE replicas ADD COLUMN mood TEXT;"
    monkeypatch.setattr(migrating, "MIGRATIONS", {SCHEMA_VERSION + 1: "next.sql"})
    monkeypatch.setattr(migrating, "SCHEMA_VERSION", SCHEMA_VERSION + 1)
    monkeypatch.setattr(migrating, "read_sql", lambda _: adds)
    newer = connect(postgres_store_url)
    with (
        psycopg.connect(postgres_store_url) as other,
        psycopg.connect(postgres_store_url, autocommit=True) as beside,
        ThreadPoolExecutor(1) as thread,
        contextlib.closing(newer),
    ):
        other.execute("LOCK TABLE replicas IN ROW EXCLUSIVE MODE")
        migrated = thread.submit(migrate, newer, postgres_store_url)
        while not beside.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
            assert not migrated.done()
        # Who has waited for a second looks, and gives way: the migration, which was first, but on a very slow machine.
        with contextlib.suppress(psycopg.errors.DeadlockDetected):
            other.execute("LOCK TABLE chat_sessions IN ROW EXCLUSIVE MODE")
        other.rollback()
        migrated.result(30)
        newer.commit()
        noted = beside.execute("SELECT number, additive FROM schema_versions ORDER BY number").fetchall()
        assert noted == [(SCHEMA_VERSION, True), (SCHEMA_VERSION + 1, True)]


def test_a_new_database_is_of_the_newest_version(postgres_store_url: str) -> None:
    """It went through none of the others."""
    with psycopg.connect(postgres_store_url) as connection:
        assert connection.execute("select number from schema_versions").fetchall() == [(SCHEMA_VERSION,)]
