"""``clew rebuild``: a store made anew from its event log, from the command line."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tests.integration.test_cli_history import Say, say, talk

__all__ = ["say"]


@pytest.mark.rule("ST-10")
def test_a_store_is_rebuilt_from_its_log_and_compared(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switched on in the settings after a talk; a row changed behind the log's back is told, and is exit code 7."""
    session = talk("first", "second")
    code, _, err = say("rebuild", str(tmp_path / "early.db"))
    assert (code, "event_log = true" in err) == (2, True)
    folder = tmp_path / "settings" / "clew"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("event_log = true\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    assert say("archive", session)[0] == 0
    target = tmp_path / "rebuilt.db"
    code, out, _ = say("rebuild", str(target))
    assert code == 0
    assert out.endswith(f" facts, 1 sessions, equal to the store: {target}\n")
    assert say("show", session, "--store", f"sqlite:///{target}") == say("show", session)
    with sqlite3.connect(tmp_path / "store.db") as connection:
        connection.execute("UPDATE chat_sessions SET agent = 'another'")
    code, out, _ = say("rebuild", str(tmp_path / "second.db"), "--json")
    told = json.loads(out)
    assert (code, told["sessions"], len(told["differences"])) == (7, 1, 1)
    assert told["differences"][0] == {"what": "a row of chat_sessions differs", "session_id": None, "id": session}
    code, out, _ = say("rebuild", str(tmp_path / "third.db"))
    assert (code, out.splitlines()[0]) == (7, f"{session}: a row of chat_sessions differs")
