"""The files of a line."""

from __future__ import annotations

from typing import Any

from clew.compaction.files import TouchedFile, touched_files
from clew.transcript.line import LineTurn
from clew.transcript.message import MessageRow, PartRow
from clew.transcript.turn import Turn


def call(tool: str, path: str, state: str = "output-available", **more: Any) -> dict[str, Any]:
    return {"type": f"tool-{tool}", "toolCallId": "c", "state": state, "input": {"path": path}, **more}


def turn(name: str, at: int, *parts: dict[str, Any]) -> LineTurn:
    rows = tuple(PartRow(f"p{n}", n, part, at, at + n) for n, part in enumerate(parts))
    row = MessageRow(f"m-{name}", "ses", "assistant", at, at, {}, rows)
    return LineTurn(Turn(id=name, session_id="ses", parent_turn_id=None, created_at=at), (row,))


def touched(path: str, count: int, last_turn_id: str, last_at: int, *, read: bool, modified: bool) -> TouchedFile:
    return TouchedFile(path=path, read=read, modified=modified, count=count, last_turn_id=last_turn_id, last_at=last_at)


def test_files_come_in_the_order_of_their_last_touch() -> None:
    """With how often, by whom last, and whether any call read or changed them; only calls that were carried out."""
    line = [
        turn("t1", 10, call("read", "a.txt"), call("read", "b.txt"), {"type": "text", "text": "read c.txt"}),
        turn("t2", 20, call("write", "./b.txt"), call("bash", "x"), call("edit", "d.txt", "output-error")),
        turn("t3", 30, call("read", "a.txt"), call("write", "e.txt", "approval-requested"), {"type": "tool-read"}),
    ]
    assert touched_files(line) == [
        touched("a.txt", 2, "t3", 30, read=True, modified=False),
        touched("b.txt", 2, "t2", 20, read=True, modified=True),
    ]
    assert touched_files([]) == []


def test_a_path_below_the_workspace_is_one_file_however_it_is_written() -> None:
    """One outside of it, and one that only begins alike, stay as they are."""
    line = [turn("t1", 1, call("read", "a"), call("edit", "/w/a"), call("read", "/w2/a"), call("read", "/etc/x"))]
    assert touched_files(line, "/w") == [
        touched("/etc/x", 1, "t1", 4, read=True, modified=False),
        touched("/w2/a", 1, "t1", 3, read=True, modified=False),
        touched("a", 2, "t1", 2, read=True, modified=True),
    ]
    assert touched_files(line, "/")[0].path == "etc/x"
