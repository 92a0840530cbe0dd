"""A database of any version of the format becomes one of this version, the same as a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from clew.store.sql.postgres.connection import connect
from clew.store.sql.postgres.migrate import FIRST_VERSION, MIGRATIONS, SCHEMA_VERSION, migrate
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


def test_a_new_database_is_of_the_newest_version(postgres_store_url: str) -> None:
    """It went through none of the others."""
    with psycopg.connect(postgres_store_url) as connection:
        assert connection.execute("select number from schema_versions").fetchall() == [(SCHEMA_VERSION,)]
