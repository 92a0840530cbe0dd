"""The ledger under its plain names: a file of its own by ``clew ledger``, and the views that the how-to gives."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from tests.integration.command_line import Run, run

__all__ = ["run"]

HOW_TO: Final = Path(__file__).parents[2] / "docs" / "how-to.md"
NAMES: Final = {
    "sessions": "ledger_sessions",
    "turns": "ledger_turns",
    "messages": "ledger_messages",
    "tool_calls": "ledger_tool_calls",
    "events": "ledger_events",
}
"""What each is called in the store itself."""


def ask(path: Path, *questions: str, before: str = "") -> list[tuple[list[str], list[tuple[Any, ...]]]]:
    """The names of the columns and the rows that plain sqlite3 answers each question with."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(before)
        found = []
        for question in questions:
            cursor = connection.execute(question)
            found.append(([column[0] for column in cursor.description], sorted(cursor.fetchall(), key=repr)))
    return found


def told(run: Run, tmp_path: Path) -> Path:
    """A store with a session and a fork of it that went on, prompts in the events ledger; where it is."""
    (tmp_path / "config" / "clew").mkdir(parents=True)
    (tmp_path / "config" / "clew" / "config.toml").write_text("ledger_prompts = true\n")
    store = f"sqlite:///{tmp_path}/work.db"
    assert run("run", "one", "--model", "demo/echo", "--store", store)[0] == 0
    [(_, [(turn,)])] = ask(tmp_path / "work.db", "SELECT id FROM ledger_turns")
    assert run("fork", turn, "--label", "aside", "--text", "two", "--store", store)[0] == 0
    told = "SELECT direction, source, status FROM ledger_events"
    [(_, events)] = ask(tmp_path / "work.db", told)
    assert events == [("in", "person:local", None)] * 2 + [("out", "person:local", "completed")] * 2
    return tmp_path / "work.db"


@pytest.mark.slow
@pytest.mark.rule("BR-8", "EV-4")
def test_the_ledger_is_written_to_a_file_of_its_own_under_its_plain_names(run: Run, tmp_path: Path) -> None:
    """Row for row what the store says, forks as one tree; it can be attached, and the store gains nothing."""
    store, file = told(run, tmp_path), tmp_path / "ledger.db"
    before = ask(store, "SELECT name, sql FROM sqlite_master")
    command = ("ledger", str(file), "--store", f"sqlite:///{store}")
    assert run(*command) == (0, f"{file}\n", "")
    plain = [f"SELECT * FROM {name}" for name in NAMES]
    own = [f"SELECT * FROM {name}" for name in NAMES.values()]
    assert ask(file, *plain) == ask(store, *own)
    labels = "SELECT s.label, t.parent_turn_id IS NULL FROM l.sessions s JOIN l.turns t ON t.id = s.current_turn_id"
    [(_, found)] = ask(tmp_path / "mine.db", labels, before=f"ATTACH '{file}' AS l")
    assert found == [("aside", 0), (None, 1)]
    assert file.stat().st_mode & 0o077 == 0
    assert ask(store, "SELECT name, sql FROM sqlite_master") == before
    code, _, err = run(*command)
    assert (code, "already exists" in err) == (2, True)


@pytest.mark.slow
@pytest.mark.rule("BR-8")
def test_the_views_of_the_how_to_show_the_store_as_it_is_now(run: Run, tmp_path: Path) -> None:
    """For the connection alone that makes them, on the store itself or where it is attached."""
    store = told(run, tmp_path)
    [views] = re.findall(r"```sql\n(CREATE TEMP VIEW.*?)```", HOW_TO.read_text(), re.DOTALL)
    plain = [f"SELECT * FROM {name}" for name in NAMES]
    own = ask(store, *(f"SELECT * FROM {name}" for name in NAMES.values()))
    assert ask(store, *plain, before=views) == own
    assert ask(tmp_path / "mine.db", *plain, before=f"ATTACH '{store}' AS clew; CREATE TABLE turns (x); {views}") == own


@pytest.mark.rule("BR-8")
def test_a_store_without_sql_says_how_to_come_by_the_ledger(run: Run, tmp_path: Path) -> None:
    """And makes no file."""
    store = f"jsonl:{tmp_path}/folder"
    assert run("run", "one", "--model", "demo/echo", "--store", store)[0] == 0
    code, _, err = run("ledger", str(tmp_path / "ledger.db"), "--store", store)
    assert (code, "clew convert" in err, (tmp_path / "ledger.db").exists()) == (7, True, False)
