"""What commands print as JSON is what the HTTP API answers, by its own document."""

from __future__ import annotations

from pathlib import Path

from tests.integration.http_document import check_answer
from tests.integration.test_cli_history import Say, messages, say, talk, turn_of

__all__ = ["say"]


def holds(say: Say, method: str, path: str, status: int, *words: str) -> None:
    """The command's JSON is an answer of that operation."""
    code, out, err = say(*words, "--json")
    assert code == 0, (words, err)
    check_answer(method, path, status, {"content-type": "application/json"}, out.encode())


def test_json_of_every_command_is_an_answer_of_the_api(say: Say, tmp_path: Path) -> None:
    """Looking first, then acting, each on a session that has something to show."""
    session = talk("first " * 200, "second " * 200, "third")
    [u1, _, u2, *_] = messages(session)
    api = f"/api/sessions/{session}"
    holds(say, "GET", "/api/sessions", 200, "ls")
    holds(say, "GET", "/api/models", 200, "models")
    holds(say, "GET", f"{api}/messages", 200, "show", session)
    holds(say, "GET", f"{api}/messages", 200, "show", session, "--model-view")
    holds(say, "GET", f"{api}/context", 200, "context", session)
    holds(say, "GET", f"{api}/queue", 200, "queue", session)
    holds(say, "GET", "/api/search", 200, "search", "second")
    holds(say, "POST", f"{api}/prune", 200, "prune", session)
    holds(say, "POST", f"{api}/compact", 200, "compact", session)
    holds(say, "POST", f"{api}/rewind", 200, "rewind", session, u2.id)
    holds(say, "POST", f"{api}/unrewind", 200, "unrewind", session)
    holds(say, "POST", f"{api}/head", 200, "goto", session, turn_of(u1))
    holds(say, "GET", f"{api}/reflog", 200, "reflog", session)
    holds(say, "GET", f"{api}/tree", 200, "tree", session)
    holds(say, "POST", f"{api}/branch", 201, "branch", session, u1.id)
    holds(say, "POST", f"/api/turns/{turn_of(u1)}/fork", 201, "fork", turn_of(u1))
    holds(say, "POST", f"{api}/abort", 202, "abort", session)
    holds(say, "PATCH", api, 200, "archive", session)
    file = tmp_path / "session.json"
    assert say("export", session, "--out", str(file))[0] == 0
    holds(say, "POST", "/api/import", 201, "import", str(file))
