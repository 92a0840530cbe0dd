"""Names of clew's tables in a file that another program uses, too: a name it has taken gets a prefix.

All SQL of a connection is translated where it is executed, so neither statements nor migrations know of it. Which names
have the prefix is read from the file: clew's table has it if a table with the prefixed name exists. If both names
exist, the other program may use either, and the one that looks like clew's is clew's.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final

from clew.store.sql.statements import read_sql

__all__ = [
    "APPLICATION_ID",
    "FORMAT_TABLES",
    "MADE",
    "PREFIX",
    "find_prefixed",
    "names_in",
    "translator",
    "use_names",
    "without_prefix",
]

APPLICATION_ID: Final = 0x636C6577  # "clew" in ASCII, where file(1) and SQLite look for it
PREFIX: Final = "clew_"
FORMAT_TABLES: Final = ("chat_sessions", "chat_messages", "chat_parts")
MADE: Final = re.compile(r"CREATE (?:UNIQUE )?(?:TABLE|INDEX|VIEW|TRIGGER) (\w+)")
_NAMES: Final = frozenset(MADE.findall(read_sql("sqlite/schema.sql"))) - {*FORMAT_TABLES, "clew_schema"}
_FTS: Final = frozenset(
    {
        "search_texts",
        "search_index",
        *(f"search_index_{kind}" for kind in ("data", "idx", "content", "docsize", "config")),
    }
)
"""The search index and its tables. The first search creates it, so its statements say whether it is clew's."""
_SEARCH_PREFIX: Final = re.compile(rf"\b{PREFIX}(?=search_)")


def find_prefixed(connection: sqlite3.Connection, schema: str = "main") -> frozenset[str]:
    """Return the names that clew's tables, indexes, views and triggers have with a prefix in this file."""
    found = names_in(connection, schema)
    (header,) = connection.execute(f"PRAGMA {schema}.application_id").fetchone()
    is_store = "clew_schema" in found or header == APPLICATION_ID
    prefixed = {name for name in _NAMES if is_store and PREFIX + name in found}
    prefixed -= {name for name in prefixed & found.keys() if _is_own(connection, schema, name, found[name])}
    is_own = "content='search_texts'" in (found.get("search_index") or "") or "search_index" not in found
    is_own = is_own and ("search_docs" in (found.get("search_texts") or "") or "search_texts" not in found)
    if not is_own:
        # One that is damaged has marks of what clew put into it.
        marks = PREFIX + "search_marks" if "search_marks" in prefixed else "search_marks"
        mark = f"SELECT 1 FROM {schema}.{marks} LIMIT 1"
        is_own = is_store and marks in found and connection.execute(mark).fetchone() is not None
    if not is_own or f"content='{PREFIX}search_texts'" in (found.get(PREFIX + "search_index") or ""):
        prefixed |= _FTS
    return frozenset(prefixed)


def names_in(connection: sqlite3.Connection, schema: str = "main") -> dict[str, str | None]:
    """Return all names of a file in lower case, because SQLite compares them so, each with its statement."""
    query = f"SELECT lower(name), sql FROM {schema}.sqlite_master"
    return dict(connection.execute(query))


def _is_own(connection: sqlite3.Connection, schema: str, name: str, statement: str | None) -> bool:
    """Return whether what has this name was made by clew: a table with its columns, or the same statement."""
    own, columns = _own_schema()[name]
    if columns:
        return columns <= {row[1] for row in connection.execute(f"PRAGMA {schema}.table_info({name})")}
    return _spelling(statement) == _spelling(own)


@functools.cache
def _own_schema() -> dict[str, tuple[str | None, set[str]]]:
    """Return the statement of each name that clew uses, and the columns of tables."""
    with contextlib.closing(sqlite3.connect(":memory:")) as own:
        own.executescript(read_sql("sqlite/schema.sql"))
        made = own.execute("SELECT name, sql, type FROM sqlite_master").fetchall()
        return {
            name: (
                statement,
                {row[1] for row in own.execute(f"PRAGMA table_info({name})")} if kind == "table" else set(),
            )
            for name, statement, kind in made
        }


def _spelling(statement: str | None) -> str:
    return re.sub(rf"\b{PREFIX}|\s", "", statement or "").rstrip(";").lower()


def translator(prefixed: Iterable[str]) -> Callable[[str], str]:
    """Return a function that adds the prefix to these names in a statement."""
    names = "|".join(sorted(prefixed))
    if not names:
        return lambda statement: statement
    pattern = re.compile(rf"\b(?:{names})\b")
    return functools.lru_cache(1024)(lambda statement: pattern.sub(lambda name: PREFIX + name[0], statement))


def use_names(connection: sqlite3.Connection, more: Iterable[str] = ()) -> sqlite3.Connection:
    """Make a connection use the names that the file has, and the prefix for ``more`` names. Most files need neither."""
    # Through a connection that adds the prefix already, another program's table would look like clew's.
    for name in ("execute", "executemany"):
        getattr(connection, "__dict__", {}).pop(name, None)
    prefixed = find_prefixed(connection) | frozenset(more)
    if prefixed:
        own, kind = translator(prefixed), type(connection)

        def execute(statement: str, *params: Any) -> sqlite3.Cursor:
            return kind.execute(connection, own(statement), *params)

        def executemany(statement: str, *params: Any) -> sqlite3.Cursor:
            return kind.executemany(connection, own(statement), *params)

        vars(connection).update(execute=execute, executemany=executemany)
    return connection


def without_prefix(statement: str) -> str:
    """Return a statement of the search index as it is in a file whose names clew has for itself."""
    return _SEARCH_PREFIX.sub("", statement)
