"""Two engines, one code: what the SQL stores share finds its statements in both, with the same parameters."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import clew.store.sql
from clew.store.sql.statements import load_queries, read_sql

SHARED = Path(clew.store.sql.__file__).parent
OF_SQLITE = {"adopt.py", "log.py", "lost_commits.py", "restore.py"}
"""What a store on PostgreSQL does not do: take in what others wrote, keep an event log, note what it acknowledged."""
OTHERWISE = {"load_journal", "get_commits"}
"""The journal has rows of one stream there, and no number counts commits."""

PARAMETER = re.compile(r"(?<!:):([a-z_][a-z_0-9]*)")


@pytest.mark.rule("ST-12")
def test_every_statement_that_is_shared_is_there_for_both_engines() -> None:
    """Whoever adds one to SQLite's file and uses it in shared code adds it to PostgreSQL's."""
    sqlite, postgres = load_queries("sqlite/queries.sql"), load_queries("postgres/queries.sql")
    modules = [path for path in SHARED.glob("*.py") if path.name not in OF_SQLITE]
    words = {word for path in modules for word in re.findall(r'"([a-z_]+)"', path.read_text())}
    shared = (words & sqlite.keys()) - OTHERWISE
    assert shared - postgres.keys() == set()
    named = {name: [set(PARAMETER.findall(queries[name])) for queries in (sqlite, postgres)] for name in shared}
    # Where a title is looked for, SQLite alone looks at the text first.
    differing = {name: (ours ^ theirs) - {"plain"} for name, (ours, theirs) in named.items()}
    assert {name: names for name, names in differing.items() if names} == {}


@pytest.mark.rule("ST-12", "ST-2")
def test_both_engines_have_the_same_tables_and_columns() -> None:
    """But for what is about one file, and what is about many processes."""

    def columns(path: str) -> dict[str, set[str]]:
        tables = re.findall(r"^CREATE TABLE (\w+) \((.*?)^\)", read_sql(path), re.MULTILINE | re.DOTALL)
        named = ((table, re.findall(r'^    "?(\w+)"? [A-Z]', body, re.MULTILINE)) for table, body in tables)
        return {table: set(names) - {"PRIMARY"} for table, names in named}

    sqlite, postgres = columns("sqlite/schema.sql"), columns("postgres/schema.sql")
    assert sqlite.keys() - postgres.keys() == {"store_losses"}
    assert postgres.keys() - sqlite.keys() == {"schema_versions", "search_stale", "writer_marks"}
    differing = {name: sqlite[name] ^ postgres[name] for name in sqlite.keys() & postgres.keys()}
    assert {name: names for name, names in differing.items() if names} == {
        "store_marks": {"commits"},
        "stream_journal": {"message_id", "session_id"},
        "search_docs": {"message_id", "words"},
    }
