"""Finding what was said, and sessions as files, from the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from tests.integration.http_history import NOBODY
from tests.integration.test_cli_history import Say, messages, say, talk

__all__ = ["say"]


def test_a_search_prints_where_it_was_said(say: Say) -> None:
    """Session, message and the words around; as JSON what HTTP answers."""
    session = talk("the thread of Ariadne", "nothing else")
    code, out, _ = say("search", "ariad")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"{session}  msg_") and line.endswith("the thread of **Ariadne**") for line in lines)
    code, out, _ = say("search", "ariad", "--json", "--limit", "1")
    page = json.loads(out)
    assert (code, len(page["hits"]), page["hits"][0]["session_id"]) == (0, 1, session)
    assert say("search", "minotaur") == (0, "", "")
    assert say("search", "  ")[0] == 2
    assert say("search", "x", "--session", NOBODY)[0] == 3


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_an_export_comes_back_by_import(say: Say, tmp_path: Path, form: str) -> None:
    """Into a new file of one's own, and out of it as a session that says the same."""
    session = talk("first", "second")
    file = tmp_path / f"session.{form}"
    assert say("export", session, "--format", form, "--out", str(file)) == (0, f"{file}\n", "")
    assert file.stat().st_mode & 0o777 == 0o600
    assert say("export", session, "--out", str(file))[0] == 2
    code, out, _ = say("import", str(file))
    assert code == 0
    other = out.strip()
    assert other != session
    assert say("show", other) == say("show", session)


def test_an_export_is_printed_without_a_file(say: Say) -> None:
    """Markdown and a page, with the words in them."""
    session = talk("hello there")
    for form in ("md", "html"):
        code, out, _ = say("export", session, "--format", form)
        assert (code, "hello there" in out) == (0, True)
    assert say("export", NOBODY)[0] == 3
    assert say("export", session, "--format", "pdf")[0] != 0


def test_what_is_no_export_is_not_imported(say: Say, tmp_path: Path) -> None:
    """Not there, not JSON, not ours."""
    file = tmp_path / "x.json"
    assert say("import", str(file))[0] == 2
    for data in (b"", b"{", b'{"format": "other"}', b"\xff"):
        file.write_bytes(data)
        assert say("import", str(file))[0] == 2
    assert say("ls")[1] == ""
    file = tmp_path / "page.html"
    file.write_text("<!doctype html>\n<title>a page</title>\n")
    code, _, err = say("import", str(file))
    assert (
        code,
        "only exports as json, jsonl, canonical-json or canonical-jsonl can be imported" in err,
        err.count("\n"),
    ) == (2, True, 1)


def test_a_dash_is_stdin(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one command prints, the other takes."""
    session = talk("first")
    exported = say("export", session)[1].encode()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(exported)))
    code, out, err = say("import", "-")
    assert (code, err) == (0, "")
    assert say("show", out.strip()) == say("show", session)


def test_an_export_for_people_says_what_it_leaves_out(say: Say) -> None:
    """Messages that were summarised or left, and the option that shows them; nothing when all is there."""
    session = talk("one", "two")
    for form in ("md", "html"):
        assert "--hidden" not in say("export", session, "--format", form)[1]
    assert say("rewind", session, messages(session)[2].id)[0] == 0
    for form in ("md", "html"):
        shown = say("export", session, "--format", form)[1]
        assert "1 message is not shown: summarised, or left behind; an export with --hidden" in shown
        assert "not shown" not in say("export", session, "--format", form, "--hidden")[1]
