"""``clew export`` for analysis: rows as tables, trajectories, and many sessions at once."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.interop import canonical
from clew.interop.canonical import COLUMNS, CSV_COLUMNS
from clew.session.history import bulk
from clew.store.unit import InsertMessage, Unit
from clew.testing.scripted import call, say, then, think
from clew.transcript.message import MessageRow, PartRow
from tests.integration.http_client import served
from tests.integration.http_history import NOBODY
from tests.integration.test_cli_history import Say, ask, talk
from tests.integration.test_cli_history import say as command

__all__ = ["command"]
pytestmark = pytest.mark.rule("IO-3")
SECRET = "sk-ant-api03-" + "Ab3dE" * 8


def rows_in(text: str) -> list[tuple[str, dict[str, Any]]]:
    return [(line["type"], line["data"]) for line in map(json.loads, text.splitlines())]


def add_parts(session_id: str, *parts: dict[str, Any]) -> None:
    """An answer that another program wrote."""

    async def go(engine: clew.Engine) -> None:
        mint, now = engine.mint, engine.clock.now_ms()
        held = tuple(PartRow(mint.part(), index, data, now, now) for index, data in enumerate(parts))
        row = MessageRow(mint.message(), session_id, "assistant", now, now, {}, held)
        await engine.store.commit(Unit(session_id, (InsertMessage(row),)))

    ask(go)


@pytest.mark.parametrize("form", ["canonical-json", "canonical-jsonl"])
def test_canonical_files_are_recognised_when_they_come_back(command: Say, tmp_path: Path, form: str) -> None:
    """Both forms have the same rows, with the columns of the three tables."""
    session = talk("first", "second")
    file = tmp_path / "session"
    assert command("export", session, "--format", form, "--out", str(file)) == (0, f"{file}\n", "")
    code, out, err = command("import", str(file))
    assert (code, err) == (0, "")
    assert command("show", out.strip()) == command("show", session)
    rows = rows_in(command("export", session, "--format", "canonical-jsonl")[1])
    assert {kind: list(data) for kind, data in rows} == {kind: list(columns) for kind, columns in COLUMNS.items()}
    whole = json.loads(command("export", session, "--format", "canonical-json")[1])
    flat = [("session", whole["session"])]
    for one in whole["messages"]:
        flat += [("message", one["message"]), *(("part", part) for part in one["parts"])]
    assert flat == rows


def test_a_csv_has_every_part_and_no_formula(command: Say) -> None:
    """Python reads back what the JSON columns hold; a cell that a spreadsheet would execute begins with a quote."""
    session = talk('one, "two"\nthree\r\n=1+1')
    odd = {"type": "tool-x", "toolCallId": "=cmd()", "state": "output-error", "input": {}, "errorText": "\x00\r\n,"}
    add_parts(session, odd)
    text = command("export", session, "--format", "csv")[1]
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    rows = [
        data for kind, data in rows_in(command("export", session, "--format", "canonical-jsonl")[1]) if kind == "part"
    ]
    assert list(read[0]) == list(CSV_COLUMNS)
    assert [(one["id"], int(one["index"]), json.loads(one["data_json"])) for one in read] == [
        (row["id"], row["index"], row["data_json"]) for row in rows
    ]
    assert [one["tool_call_id"] for one in read if one["tool_call_id"]] == ["'=cmd()"]
    assert not [cell for one in read for cell in one.values() if cell[:1] in set("=+-@\t\r")]


def test_many_sessions_are_exported_by_what_they_are(command: Say, tmp_path: Path) -> None:
    """All of them or those of a folder, an agent, a time; archived ones too, with secrets redacted."""
    one, two = talk("first"), talk(f"my key is {SECRET}", workspace_root=str(tmp_path))
    assert command("archive", one)[0] == 0

    def sessions(*filters: str) -> list[str]:
        code, out, _ = command("export", *filters)
        assert code == 0
        return [data["id"] for kind, data in rows_in(out) if kind == "session"]

    assert sessions("--all") == sorted([one, two])
    assert sessions("--workspace", str(tmp_path)) == [two]
    assert sessions("--agent", "assistant") == sorted([one, two])
    assert sessions("--owner", "ada") == sessions("--since", "2100-01-01") == sessions("--until", "2020-01-01") == []
    assert SECRET not in command("export", "--all")[1]
    assert SECRET in command("export", "--all", "--keep-secrets")[1]
    code, out, err = command("export", "--all", "--out", str(tmp_path / "all.jsonl"))
    assert (code, out) == (0, f"{tmp_path / 'all.jsonl'}\n")
    assert err == "clew: exported 2 sessions, 4 messages, 6 parts\n"
    singly = "".join(command("export", id_, "--format", "canonical-jsonl")[1] for id_ in sorted([one, two]))
    assert rows_in((tmp_path / "all.jsonl").read_text()) == rows_in(singly)
    table = csv.DictReader(io.StringIO(command("export", "--all", "--format", "csv")[1], newline=""))
    assert len(list(table)) == 6


def test_a_bulk_export_is_complete_or_not_there(command: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An existing file stays; a failure in the middle leaves nothing, not even a hidden file."""
    session = talk("first")
    target = tmp_path / "out" / "all.jsonl"
    target.parent.mkdir()
    target.write_text("mine")
    assert command("export", "--all", "--out", str(target))[0] == 2
    assert command("export", session, "--out", str(target))[0] == 2
    assert target.read_text() == "mine"
    target.unlink()

    def broken(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(canonical, "_part_row", broken)
    code, out, err = command("export", "--all", "--out", str(target))
    assert (code, out) == (2, "")
    assert "all.jsonl cannot be written: No space left on device" in err
    assert list(target.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--all", "--format", "html"), "many sessions are exported as canonical-jsonl, csv, parquet, not as html"),
        (("--all", "--format", "parquet"), "parquet needs --out, the folder to create"),
        ((NOBODY, "--all"), "give a session, or --all and filters, not both"),
        ((NOBODY, "--format", "parquet"), "give a session; --all or a filter such as --since exports many"),
        ((), "give a session; --all or a filter such as --since exports many"),
        (("--since", "soon"), "soon"),
    ],
)
def test_options_that_do_not_go_together_are_refused(command: Say, words: tuple[str, ...], why: str) -> None:
    """Before anything is written."""
    talk("first")
    code, out, err = command("export", *words)
    assert (code, out, why in err) == (2, "", True), err


def test_parquet_names_its_extra(command: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves nothing behind."""
    talk("first")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = command("export", "--all", "--format", "parquet", "--out", str(tmp_path / "pq"))
    assert (code, "pip install 'clew-sessions[parquet]'" in err) == (7, True)
    assert not list(tmp_path.glob("*pq*"))


def test_parquet_has_the_three_tables(command: Say, tmp_path: Path) -> None:
    """The same rows as the JSON lines, with JSON as text."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="clew-sessions[parquet] is not in requirements/dev.txt")
    talk("first"), talk("second")
    folder = tmp_path / "pq"
    assert command("export", "--all", "--format", "parquet", "--out", str(folder))[:2] == (0, f"{folder}\n")
    rows = rows_in(command("export", "--all")[1])
    for kind in COLUMNS:
        table = parquet.read_table(folder / f"{kind}s.parquet").to_pylist()
        assert [{name: _json(name, value) for name, value in row.items()} for row in table] == [
            data for of, data in rows if of == kind
        ]
    assert (folder.stat().st_mode & 0o777, len(list(folder.iterdir()))) == (0o700, 3)


def _json(name: str, value: Any) -> Any:
    return json.loads(value) if name.endswith("_json") else value


async def test_a_long_session_is_read_a_few_messages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never more than fifty of its messages are in memory together."""
    async with clew.open("memory:", config=clew.Config()) as engine:
        session = await engine.create_session(model="demo/echo")
        mint, asked, added = engine.mint, list[int](), list[tuple[str, str]]()
        rows = [
            MessageRow(mint.message(), session.id, "user", n, n, {}, (PartRow(mint.part(), 0, {"type": "x"}, n, n),))
            for n in range(1, 121)
        ]
        await engine.store.commit(Unit(session.id, tuple(map(InsertMessage, rows))))
        load = engine.store.load_messages

        async def counted(session_id: str, *, among: tuple[str, ...], **more: Any) -> tuple[MessageRow, ...]:
            asked.append(len(among))
            return await load(session_id, among=among, **more)

        class Sink:
            def add(self, kind: str, row: Mapping[str, Any]) -> None:
                added.append((kind, row["id"]))

        monkeypatch.setattr(engine.store, "load_messages", counted)
        counts = await bulk.export_rows(engine.store, bulk.BulkQuery(), Sink(), None)
    assert (counts.sessions, counts.messages, counts.parts, asked) == (1, 120, 120, [50, 50, 20])
    assert added == [
        ("session", session.id),
        *(pair for row in rows for pair in (("message", row.id), ("part", row.parts[0].id))),
    ]


SCRIPT: tuple[Any, ...] = (
    then(think("I look"), say("Looking."), call("read", {"path": "door.txt"}, id="call_1")),
    say("Green."),
)


async def test_a_session_goes_out_as_a_trajectory(tmp_path: Path) -> None:
    """A step for each prompt and model call, numbered; results name calls of their own step; tokens add up."""
    (tmp_path / "door.txt").write_text("green")
    async with served(*SCRIPT) as client:
        session_id = await client.session(workspace_root=str(tmp_path))
        assert (await client.get(f"/api/sessions/{session_id}/export?format=atif")).status == 422
        await client.chat(session_id, "which colour?", "u1")
        reply = await client.get(f"/api/sessions/{session_id}/export?format=atif")
        session = (await client.get(f"/api/sessions/{session_id}")).json()
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    found = reply.json()
    assert (found["schema_version"], found["session_id"]) == ("ATIF-v1.7", session_id)
    assert (found["agent"]["name"], found["agent"]["model_name"]) == ("clew", "test/model")
    steps = found["steps"]
    assert [(step["step_id"], step["source"], step["message"]) for step in steps] == [
        (1, "user", "which colour?"),
        (2, "agent", "Looking."),
        (3, "agent", "Green."),
    ]
    assert steps[1]["reasoning_content"] == "I look"
    assert steps[1]["tool_calls"] == [
        {"tool_call_id": "call_1", "function_name": "read", "arguments": {"path": "door.txt"}}
    ]
    [result] = steps[1]["observation"]["results"]
    assert (result["source_call_id"], "green" in result["content"]) == ("call_1", True)
    final = found["final_metrics"]
    for name in ("prompt_tokens", "completion_tokens"):
        assert final[f"total_{name}"] == sum(step["metrics"][name] for step in steps[1:])
    assert final["total_prompt_tokens"] + final["total_completion_tokens"] == session["total_tokens"]
    assert final["total_steps"] == 3
    known = {"step_id", "timestamp", "source", "message", "extra"}
    of_agents = {"model_name", "reasoning_content", "tool_calls", "observation", "metrics", "llm_call_count"}
    assert [set(step) - known - (of_agents if step["source"] == "agent" else set()) for step in steps] == [set()] * 3
    assert all(one["timestamp"] <= two["timestamp"] for one, two in pairwise(steps))
