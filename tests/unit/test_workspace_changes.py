"""What is decided about changed files by values alone: who made a difference, and how one hunk is taken back."""

from __future__ import annotations

import difflib
from typing import Any

import pytest

from clew.errors import Conflict
from clew.session.history.changes import revert_hunk
from clew.session.history.timeline import spans_of
from clew.transcript.workspace_snapshot import WorkspaceSnapshot

pytestmark = pytest.mark.rule("WR-4")
OLD = "".join(f"{n}\n" for n in range(1, 21))


def snapshot(point: str, tree: str | None, **fields: Any) -> WorkspaceSnapshot:
    row = {"id": f"snp_{tree}", "session_id": "s", "workspace": "/w", "created_at": 1, "state": "ready", **fields}
    return WorkspaceSnapshot(point=point, tree=tree, **row)  # type: ignore[arg-type]


def diff(old: str, new: str) -> tuple[str, list[str]]:
    """A unified diff, and the headers of its hunks."""
    found = difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), "a/f", "b/f")
    lines = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in found]
    return "".join(lines), [line.rstrip("\n") for line in lines if line.startswith("@@")]


def test_only_differences_between_a_call_and_its_end_are_the_sessions_own() -> None:
    """A call whose end nobody saved ends at the next state; a failed snapshot is no state."""
    rows = [
        snapshot("message", "a"),
        snapshot("before", "b"),
        snapshot("after", "c"),
        snapshot("end", None, state="failed"),
        snapshot("message", "d"),
        snapshot("before", "e"),
        snapshot("message", "f"),
        snapshot("saved", "g"),
        snapshot("restored", "h"),
        snapshot("message", "i"),
    ]
    assert [(*span.trees, span.by) for span in spans_of(rows)] == [
        ("a", "b", "other"),
        ("b", "c", "calls"),
        ("c", "d", "other"),
        ("d", "e", "other"),
        ("e", "f", "calls"),
        ("f", "g", "other"),
        ("g", "h", "restore"),
        ("h", "i", "other"),
    ]


@pytest.mark.parametrize(
    "new",
    [
        OLD.replace("2\n", "two\n", 1).replace("\n19\n", "\n"),
        OLD.replace("\n2\n", "\n2\nadded\n") + "end",
        "first\n" + OLD.replace("\n10\n", "\n").removesuffix("\n"),
        "".join(f"{n}\r\n" for n in range(1, 21)),
        "",
    ],
)
def test_every_hunk_can_be_taken_back_by_itself_in_any_order(new: str) -> None:
    """One leaves the others; all of them give the old content, to the last line feed."""
    text, headers = diff(OLD, new)
    for order in (headers, headers[::-1]):
        content = new.encode()
        for header in order:
            content = revert_hunk("f", content, OLD.encode(), new.encode(), text, header)
        assert content == OLD.encode()


def test_a_hunk_moves_with_its_lines_and_is_gone_once_they_changed() -> None:
    """Lines that somebody added above it do not hinder; where its lines are there twice, it is not guessed."""
    new = OLD.replace("\n10\n", "\nten\n")
    text, [header] = diff(OLD, new)
    sides = (OLD.encode(), new.encode())
    moved = "above\n" + OLD.replace("\n10\n", "\nten\n")
    assert revert_hunk("f", moved.encode(), *sides, text, header) == ("above\n" + OLD).encode()
    for present in (OLD, OLD.replace("\n10\n", "\nTEN\n"), "x\n" + OLD.replace("\n10\n", "\nten\n") * 2, ""):
        with pytest.raises(Conflict, match="changed there since"):
            revert_hunk("f", present.encode(), *sides, text, header)
    with pytest.raises(Conflict, match="no such hunk"):
        revert_hunk("f", moved.encode(), *sides, text, "@@ -99 +99 @@")


def test_a_hunk_has_the_bytes_of_the_contents_also_where_its_diff_has_not() -> None:
    """A diff that was shortened, and one of lines that are not UTF-8 or have other ends than a line feed."""
    before, after = b"a\ncaf\xe9\rx\x0c\nb\n", b"a\ncoffee\nb\n"
    text = "@@ -1,3 +1,3 @@\n a\n-caf\ufffd\rx\x0c\n... 17 more bytes are not shown.\n"
    assert revert_hunk("f", after, before, after, text, "@@ -1,3 +1,3 @@") == before
