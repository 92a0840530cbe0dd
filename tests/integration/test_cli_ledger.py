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

HOW_TO: Final = Path(__file__).parents[2] / "docs" / "how-to" / "storage.md"
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
    own = ask(store, *(f"SELECT * FROM {name}" for name in NAMES.values()))
    plain = [f"SELECT {', '.join(columns)} FROM {name}" for name, (columns, _) in zip(NAMES, own, strict=True)]
    assert ask(file, *plain) == own
    labels = "SELECT s.label, t.parent_turn_id IS NULL FROM l.sessions s JOIN l.turns t ON t.id = s.current_turn_id"
    [(_, found)] = ask(tmp_path / "mine.db", labels, before=f"ATTACH '{file}' AS l")
    assert found == [("aside", 0), (None, 1)]
    assert file.stat().st_mode & 0o077 == 0
    assert ask(store, "SELECT name, sql FROM sqlite_master") == before
    code, _, err = run(*command)
    assert (code, "already exists" in err) == (2, True)


@pytest.mark.slow
@pytest.mark.rule("EV-6", "BR-7")
def test_the_ledger_has_the_columns_of_its_neighbours_and_a_compaction_its_messages(run: Run, tmp_path: Path) -> None:
    """Source 004:21,122,161. Tokens are the steps' sums; a summary is asked for and given in its own turn."""
    (tmp_path / "config" / "clew").mkdir(parents=True)
    (tmp_path / "config" / "clew" / "config.toml").write_text("ledger_prompts = true\n")
    store, file = f"sqlite:///{tmp_path}/work.db", tmp_path / "ledger.db"
    (tmp_path / "note.txt").write_text("a note")
    chosen: tuple[str, ...] = ()
    session = ""
    for prompt in ("word " * 300, "term " * 300, "!read note.txt"):
        code, _, err = run("run", prompt, *chosen, "--model", "demo/tools", "--store", store)
        assert code == 0, err
        [(_, [(session,)])] = ask(tmp_path / "work.db", "SELECT id FROM chat_sessions")
        chosen = ("--session", session)
    assert run("compact", session, "--focus", "terms", "--store", store)[0] == 0
    [(_, [(head,)])] = ask(tmp_path / "work.db", "SELECT current_turn_id FROM ledger_sessions")
    assert run("fork", head, "--store", store)[0] == 0
    assert run("ledger", str(file), "--store", store)[0] == 0
    with closing(sqlite3.connect(file)) as ledger:

        def rows(question: str, *given: Any) -> list[tuple[Any, ...]]:
            return ledger.execute(question, given).fetchall()

        labels = rows("SELECT persona, label FROM sessions ORDER BY created_at")
        assert ([persona for persona, _ in labels], labels[0][1]) == (["assistant"] * 2, None)
        assert re.fullmatch("fork-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", labels[1][1])
        turns = rows("SELECT * FROM turns WHERE turn_type = 'normal'")
        assert rows("SELECT count(DISTINCT root_turn_id), min(root_turn_id = id OR depth > 0) FROM turns") == [(1, 1)]
        linked = (
            "SELECT count(*) FROM turns t JOIN events e ON e.id = t.source_event_id AND e.direction = 'in' "
            "JOIN messages m ON m.id = e.message_id AND m.turn_id = t.id"
        )
        assert rows(linked) == [(len(turns),)] == [(3,)]
        used = rows("SELECT sum(total_tokens), sum(input_tokens + output_tokens) FROM turns WHERE turn_type = 'normal'")
        sums = f"SELECT total_tokens, prompt_tokens + completion_tokens FROM chat_sessions WHERE id = '{session}'"
        known = ask(tmp_path / "work.db", sums)
        assert used == known[0][1]
        [(summary, through, tokens)] = rows(
            "SELECT summary, summarized_through_turn_id, total_tokens FROM turns WHERE id = ?", head
        )
        assert tokens > 0
        said = rows("SELECT sequence, role, content FROM messages WHERE turn_id = ? ORDER BY sequence", head)
        query = f"Summarise the conversation through turn {through}; pay special attention to: terms."
        assert said == [(0, "user", query), (1, "assistant", summary)]
        assert rows("SELECT tool_name, parameters FROM tool_calls") == [("read", '{"path":"note.txt"}')]


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


@pytest.mark.rule("BR-8", "EV-6")
def test_a_store_of_another_kind_has_its_ledger_written_from_a_copy(run: Run, tmp_path: Path) -> None:
    """With the same tables; nothing of the copy stays."""
    store, file = f"jsonl:{tmp_path}/folder", tmp_path / "ledger.db"
    assert run("run", "one", "--model", "demo/echo", "--store", store)[0] == 0
    assert run("ledger", str(file), "--store", store) == (0, f"{file}\n", "")
    [(_, said)] = ask(file, "SELECT sequence, role, content FROM messages")
    assert said == [(0, "user", "one"), (1, "assistant", "one")]
