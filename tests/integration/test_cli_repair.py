"""``clew check --repair``: what follows from the rest is written anew, and the store is kept as it was."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from tests.integration.test_cli_history import Say, messages, say, talk

__all__ = ["say"]


def test_marks_that_hide_messages_are_written_anew_and_the_store_is_kept(say: Say, tmp_path: Path) -> None:
    """The judge is content afterwards; the backup still has the damage; text is not touched."""
    session = talk("first", "second")
    [first, *_] = messages(session)
    broken = "UPDATE chat_messages SET metadata_json = json_set(metadata_json, '$.hidden_at', 1) WHERE id = ?"
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute(broken, (first.id,))
    assert say("check")[0] == 7
    code, out, err = say("check", "--repair")
    assert (code, out.splitlines()[-1]) == (0, "1 sessions, 0 problems")
    assert out.startswith(f"repaired {session} {first.id}: hidden_at")
    [kept] = tmp_path.glob("store.db.before-repair-*")
    assert str(kept) in err
    assert kept.stat().st_mode & 0o777 == 0o600
    assert say("check", "--store", f"sqlite:///{kept}")[0] == 7
    assert messages(session)[0] == first


def test_what_cannot_be_worked_out_is_left_and_told(say: Say, tmp_path: Path) -> None:
    """A text that was changed from outside stays what it is."""
    session = talk("first")
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute(
            "UPDATE chat_parts SET data_json = json_set(data_json, '$.text', 'other') WHERE type = 'text'"
        )
    code, out, _ = say("check", "--repair")
    assert (code, "repaired" in out, session in out) == (7, False, True)
