"""The pages of docs/storage-format that come from ``schema.sql`` and the descriptions in ``tables.toml``.

A column without a description, or a description without a column, fails.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import tomllib
from pathlib import Path
from typing import Any, Final

from clew.store.sql.statements import read_sql
from tools.source_docs import head, table

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "storage-format"
_SHARED: Final = ("chat_sessions", "chat_messages", "chat_parts")


def storage_pages() -> dict[Path, str]:
    """Return the text of each generated page by its path."""
    described = tomllib.loads((FOLDER / "tables.toml").read_text(encoding="utf-8"))
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.executescript(read_sql("sqlite/schema.sql"))
        made = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE sql NOT NULL").fetchall()
        names = {kind: [name for one, name, *_ in made if one == kind] for kind in ("table", "view")}
        columns = {name: db.execute(f"PRAGMA table_xinfo({name})").fetchall() for of in names.values() for name in of}
        keys = {name: db.execute(f"PRAGMA foreign_key_list({name})").fetchall() for name in names["table"]}
    indexes = {name: [one for kind, one, of, _ in made if kind == "index" and of == name] for name in names["table"]}
    if unknown := set(described) ^ set(columns):
        raise SystemExit(f"tables.toml and schema.sql differ: {sorted(unknown)}")
    sql = {name: text for kind, name, _, text in made if kind == "table"}
    order = [name for name in described if name in names["table"]]
    parts = [
        head("Tables", "Every table of a SQLite store, with its columns.", "`schema.sql` and `tables.toml`"),
        "The first three tables are **the format**, which other programs know too; clew adds no column to them. "
        "Everything "
        "else is clew's own. Times are milliseconds since 1970. A column named `…_json` holds JSON as text. NULL means "
        "that there is none.\n",
        "## The shared tables as SQL\n",
        "A database with only these tables is [a store](other-programs.md).\n",
        "```sql\n" + "\n".join(f"{sql[name]};" for name in _SHARED) + "\n```\n",
        "## Diagram\n",
        '"cascade" is a foreign key that deletes along. The other lines are references without a foreign key.\n',
        f"```mermaid\n{_diagram(order, columns, keys, described)}\n```\n",
    ]
    parts += [_section(name, described[name], columns[name], keys[name], indexes[name]) for name in order]
    views = [head("Views of the ledger", "The turn ledger in SQL, column by column.", "`schema.sql` and `tables.toml`")]
    views.append("[The turn ledger](search-and-ledger.md#the-turn-ledger) says what they are for.\n")
    views += [_section(name, described[name], columns[name], [], []) for name in described if name in names["view"]]
    return {FOLDER / "tables.md": "\n".join(parts), FOLDER / "ledger-views.md": "\n".join(views)}


def _section(name: str, about: dict[str, Any], columns: list[Any], keys: list[Any], indexes: list[str]) -> str:
    described = {key: text for key, text in about.items() if key not in ("about", "links")}
    if list(described) != (found := [column[1] for column in columns]):
        raise SystemExit(f"tables.toml describes other columns of {name}: {sorted(set(described) ^ set(found))}")
    targets = {key[3]: key[2] for key in keys}
    rows = []
    for _, column, kind, needed, _, place, _ in columns:
        notes = ["key"] if place else [] if needed or not kind else ["NULL"]
        notes += [f"→ `{targets[column]}`"] if column in targets else []
        rows.append((f"`{column}`", f"{kind} {', '.join(notes)}".strip(), described[column]))
    text = f"## `{name}`\n\n" + (f"{about['about']}\n\n" if "about" in about else "")
    text += table(("column", "type", "means"), rows) + "\n"
    return text + (f"\nIndexes: {', '.join(f'`{one}`' for one in indexes)}.\n" if indexes else "")


def _diagram(order: list[str], columns: dict[str, list[Any]], keys: dict[str, list[Any]], described: Any) -> str:
    lines = ["erDiagram", "    direction LR"]
    for name in order:
        for key in keys[name]:
            own = next(column for column in columns[name] if column[1] == key[3])
            is_one = own[5] == 1 and sum(bool(column[5]) for column in columns[name]) == 1
            ends = f"{'||' if own[3] else '|o'}--{'o|' if is_one else 'o{'}"
            lines.append(f'    {key[2]} {ends} {name} : "{key[6].lower()}"')
        links = described[name].get("links", ())
        lines += [f'    {other} {ends} {name} : "{label}"' for other, ends, label in links]
    for name in order:
        shown = [
            f"        {re.sub(r'[^A-Z]', '', kind) or 'TEXT'} {column} {'PK' if place else 'FK'}"
            for _, column, kind, _, _, place, _ in columns[name]
            if place or column in {key[3] for key in keys[name]}
        ]
        lines += [f"    {name} {{", *shown, "    }"]
    return "\n".join(lines)
