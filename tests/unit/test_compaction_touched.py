"""The files of a line."""

from __future__ import annotations

from typing import Any

import pytest

from clew.compaction.files import Files, TouchedFile, file_tags, files_of, touched_files
from clew.transcript.line import LineTurn
from clew.transcript.message import Message, MessageRow, PartRow
from clew.transcript.turn import Turn
from clew.transcript.view import visible_view


def call(tool: str, path: str, state: str = "output-available", **more: Any) -> dict[str, Any]:
    return {"type": f"tool-{tool}", "toolCallId": "c", "state": state, "input": {"path": path}, **more}


def turn(name: str, at: int, *parts: dict[str, Any]) -> LineTurn:
    rows = tuple(PartRow(f"p{n}", n, part, at, at + n) for n, part in enumerate(parts))
    row = MessageRow(f"m-{name}", "ses", "assistant", at, at, {}, rows)
    return LineTurn(Turn(id=name, session_id="ses", parent_turn_id=None, created_at=at), (row,))


def touched(path: str, count: int, last_turn_id: str, last_at: int, *, read: bool, modified: bool) -> TouchedFile:
    """One that was changed was so once."""
    told: dict[str, Any] = {"read": read, "modified": modified, "count": count, "changes": int(modified)}
    return TouchedFile(path=path, **told, last_turn_id=last_turn_id, last_at=last_at)


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


def read_all(*paths: str) -> list[Message]:
    return [Message("m", "assistant", [call("read", path) for path in paths], {})]


@pytest.mark.rule("CP-7")
def test_a_compaction_names_the_newest_files_and_how_many_more_there_were() -> None:
    """Over compactions too: what was touched again is new again, and what was touched longest ago goes first."""
    names = [f"{n:04}.py" for n in range(1000)]
    first = files_of(read_all(*reversed(names)), Files())
    assert first == Files(tuple(reversed(names[:200])), more_read=800)
    second = files_of(read_all("0199.py", "new.py"), first)
    assert second == Files((*reversed(names[:199]), "0199.py", "new.py")[1:], more_read=801)
    told = "\n".join((*names[:18], "0199.py", "new.py", "… and 981 more"))
    assert file_tags(second, 60) == f"\n<read-files>\n{told}\n</read-files>\n"
    assert files_of([], Files(("b", "a"))) == Files(("a", "b"))


@pytest.mark.rule("CP-2")
def test_of_a_compaction_that_names_all_its_files_a_view_shows_the_last() -> None:
    """Older ones do, and one of them was read with every look at its session."""
    names = [f"{n:04}.py" for n in range(1000)]
    data = {"summary": "so far", "tail_start_id": "m-t2", "read_files": names, "modified_files": ["a"]}
    part = PartRow("p", 0, {"type": "data-compaction", "data": data}, 0, 0)
    row = MessageRow("m", "ses", "assistant", 0, 0, {"summary": True}, (part,))
    shown = visible_view(
        [LineTurn(Turn(id="t", session_id="ses", parent_turn_id=None, created_at=0, kind="compaction"), (row,))]
    )
    told = {**data, "read_files": names[800:], "more_read_files": 800}
    assert [message.parts for message in shown] == [[{"type": "data-compaction", "data": told}]]
