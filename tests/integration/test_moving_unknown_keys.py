"""Unknown keys survive an import: every object of every file, at any depth, may say what no reader knows."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.interop.programs.disk import find_sessions, read_discovered
from clew.interop.programs.import_report import Program
from clew.interop.programs.readers import read_foreign
from clew.providers.registry import ProviderConfig, ProviderRegistry
from tests.integration.command_line import Run, run
from tests.integration.moved_in import PROGRAMS, told
from tests.integration.wire_server import ANTHROPIC, WireServer, ok

__all__ = ["run"]

CASES: dict[str, Program] = {
    "claude-code/1.0": "claude-code",
    "claude-code/2.1": "claude-code",
    "claude-code/compacted": "claude-code",
    "claude-code/several": "claude-code",
    "codex/0.80": "codex",
    "codex/forks": "codex",
    "codex/old": "codex",
    "opencode/files": "opencode",
    "opencode/database": "opencode",
    "opencode/database-2": "opencode",
    "opencode/export": "opencode",
    "opencode/export-2": "opencode",
    "pi/1": "pi",
    "pi/3": "pi",
}
GIVEN = frozenset({"input", "arguments", "action"})
"""What a model gave a tool is the conversation itself, whatever keys it has."""
MARK = re.compile(r"mark-\d+-")
UNPLACED = {
    "claude-code/1.0": ["in the record of summary"],
    "claude-code/2.1": ["in the record of custom-title"],
    "pi/3": ["in the record of session_info"],
}
"""An export writes the line of a title anew."""
PIXEL = "data:image/png;base64,iVBORw0KGgo="
MODEL = {"id": "claude-sonnet-4-5", "providerID": "anthropic", "variant": "high"}
ROWS: list[tuple[str, dict[str, Any]]] = [
    ("agent-switched", {"agent": "build"}),
    ("user", {"text": "Where?", "files": [{"uri": PIXEL, "mime": "image/png", "name": "a.png", "source": {"at": 1}}]}),
    (
        "assistant",
        {
            "model": MODEL,
            "tokens": {"input": 10, "output": 2, "cache": {"read": 1, "write": 0}},
            "cost": 0.5,
            "content": [
                {"type": "reasoning", "text": "Look.", "native": {"anthropic": {"signature": "seal"}}},
                {
                    "type": "tool",
                    "id": "call_1",
                    "name": "read",
                    "time": {"created": 1},
                    "state": {
                        "status": "completed",
                        "input": {"path": "map"},
                        "structured": {"lines": 1},
                        "content": [
                            {"type": "text", "text": "a door"},
                            {"type": "file", "uri": PIXEL, "mime": "image/png"},
                        ],
                    },
                },
                {
                    "type": "tool",
                    "id": "call_2",
                    "name": "read",
                    "state": {"status": "error", "input": {}, "content": [], "error": {"type": "x", "message": "no"}},
                },
            ],
        },
    ),
    ("assistant", {"model": MODEL, "content": [{"type": "text", "text": "At the door."}], "finish": "stop"}),
    ("synthetic", {"text": "The door opened."}),
    ("compaction", {"status": "completed", "reason": "manual", "summary": "A thread.", "recent": "user: Where?"}),
    ("shell", {"command": "ls", "output": {"output": "map"}, "status": "exited"}),
    ("user", {"text": "Go on."}),
    ("assistant", {"model": MODEL, "content": [], "error": {"type": "provider.auth", "message": "no key"}}),
    ("idle", {"outcome": "failed"}),
]


def newer_export() -> dict[str, Any]:
    """A session as version 2 of opencode exports it."""
    messages = [
        {"id": f"m{seq}", "type": kind, **data, "time": {"created": 1_764_000_000_000 + seq}}
        for seq, (kind, data) in enumerate(ROWS)
    ]
    return {
        "info": {"id": "ses_3", "location": {"directory": "/home/ada"}, "time": {"created": 1}},
        "messages": messages,
    }


def older_export() -> dict[str, Any]:
    """A session as version 1 of opencode exports it."""
    [found] = find_sessions("opencode", PROGRAMS / "opencode/files")
    document: dict[str, Any] = json.loads(read_discovered(found))
    return document


def database(file: Path, path: str, marks: Marks | None) -> None:
    """Write a session into the tables of one of the versions, with its objects as they are stored there."""

    def stored(value: Any) -> str:
        return json.dumps(marks.put(value) if marks else value)

    with closing(sqlite3.connect(file)) as base:
        if path == "opencode/database-2":
            base.execute("CREATE TABLE session_v2 (id, parent_id, directory, title, time_created)")
            base.execute("CREATE TABLE session_message (id, session_id, type, seq, time_created, data)")
            base.execute("INSERT INTO session_v2 VALUES ('ses_2', '', '/home/ada', 'The thread', 1764000000000)")
            for seq, (kind, data) in enumerate(ROWS):
                values = (
                    f"msg_{seq:02}",
                    "ses_2",
                    kind,
                    seq,
                    seq,
                    stored({**data, "time": {"created": 1_764_000_000_000}}),
                )
                base.execute("INSERT INTO session_message VALUES (?,?,?,?,?,?)", values)
        else:
            document = older_export()
            info = document["info"]
            base.execute("CREATE TABLE session (id, directory, title, revert, time_created)")
            base.execute("CREATE TABLE message (id, session_id, time_created, data)")
            base.execute("CREATE TABLE part (id, message_id, session_id, data)")
            about = (info["id"], info["directory"], info["title"], stored(info["revert"]), info["time"]["created"])
            base.execute("INSERT INTO session VALUES (?,?,?,?,?)", about)
            for number, message in enumerate(document["messages"]):
                own = message["info"]["id"]
                base.execute("INSERT INTO message VALUES (?,?,?,?)", (own, info["id"], number, stored(message["info"])))
                for part in message["parts"]:
                    base.execute("INSERT INTO part VALUES (?,?,?,?)", (part["id"], own, info["id"], stored(part)))
        base.commit()


class Marks:
    """Marks objects with a key nobody knows, each with a value of its own: a text, a list, an object."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def put(self, value: Any, where: str = "") -> Any:
        if isinstance(value, list):
            return [self.put(item, f"{where}[]") for item in value]
        if not isinstance(value, dict):
            return value
        marked = {key: item if key in GIVEN else self.put(item, f"{where}.{key}") for key, item in value.items()}
        mark = f"mark-{len(self.made)}-"
        self.made.append(f"{mark} in {where or 'the record'} of {value.get('type')}")
        return {
            **marked,
            f"zzUnknown{len(self.made)}": (mark, [{"in": mark}], {"off": False, "in": mark})[len(self.made) % 3],
        }

    def line(self, line: str) -> str:
        try:
            value = json.loads(line)
        except ValueError:
            return line
        return json.dumps(self.put(value)) if isinstance(value, dict) else line


def copied(path: str, to: Path, marks: Marks | None) -> Path:
    """Copy a fixture, marked where there are marks. A line that stands there twice is marked once."""
    exports = {"opencode/export": older_export, "opencode/export-2": newer_export}
    if path in exports:
        document = exports[path]()
        file = to / "export.json"
        to.mkdir()
        file.write_text(json.dumps(marks.put(document) if marks else document))
        return file
    if path.startswith("opencode/database"):
        to.mkdir()
        database(to / "opencode.db", path, marks)
        return to
    for file in sorted(one for one in (PROGRAMS / path).rglob("*") if one.is_file()):
        made = to / file.relative_to(PROGRAMS / path)
        made.parent.mkdir(parents=True, exist_ok=True)
        words, seen = file.read_text(), dict[str, str]()
        if marks is not None:
            lines = words.split("\n") if file.suffix == ".jsonl" else [words]
            words = "\n".join(
                seen.setdefault(line, marks.line(line)) if line not in seen else seen[line] for line in lines
            )
        made.write_text(words)
    return to


def imported(run: Run, program: Program, place: Path, store: str) -> list[str]:
    """Import what is there and return the aliases of its sessions, those of subagents included."""
    code, _, err = run("import", "--from", program, str(place), "--json", "--store", store)
    assert code == 0, err
    return [
        f"{program}:{one.id}"
        for found in find_sessions(program, place)
        for one in read_foreign(program, read_discovered(found))
    ]


def whole_of(run: Run, alias: str, store: str) -> dict[str, Any]:
    code, out, err = run("export", alias, "--keep-secrets", "--store", store)
    assert code == 0, err
    whole: dict[str, Any] = json.loads(out)
    return whole


def kept_of(whole: dict[str, Any]) -> Iterator[Any]:
    for row in whole["messages"]:
        yield from (part["data"] for part in row["parts"] if part["data"]["type"] == "data-kept")


def spoken(whole: dict[str, Any]) -> dict[str, Any]:
    """The conversation without what was kept beside it."""
    said = told(whole)
    for row in said["messages"]:
        row["parts"] = [part for part in row["parts"] if part["type"] != "data-kept"]
    return said


async def requests_of(alias: str, store: str) -> str:
    """Send a prompt and return what a provider got."""
    async with WireServer() as wire:
        wire.always(*ok(), *ANTHROPIC.text("Here."))
        config = ProviderConfig(kind="anthropic", base_url=wire.url, api_key="k")
        registry = ProviderRegistry({"work": config}, default_model="work/claude-x", environ={})
        async with clew.open(store, providers=registry) as engine:
            await (await engine.submit(alias, "go on", model="work/claude-x")).wait()
        return json.dumps([request.json for request in wire.requests])


@pytest.mark.rule("IO-1", "FS-7")
@pytest.mark.parametrize("path", CASES)
def test_an_unknown_key_of_any_object_is_kept_and_neither_shown_nor_sent(run: Run, tmp_path: Path, path: str) -> None:
    """Of lines, messages, blocks, results, usage, of parts and of a session; the conversation is what it is without."""
    program, marks = CASES[path], Marks()
    store, plain_store = f"sqlite:///{tmp_path}/marked.db", f"sqlite:///{tmp_path}/plain.db"
    aliases = imported(run, program, copied(path, tmp_path / "marked", marks), store)
    assert imported(run, program, copied(path, tmp_path / "plain", None), plain_store) == aliases
    kept = ""
    for alias in aliases:
        whole = whole_of(run, alias, store)
        kept += json.dumps(list(kept_of(whole)))
        assert spoken(whole) == spoken(whole_of(run, alias, plain_store))
        assert MARK.search(json.dumps(spoken(whole))) is None
        code, out, _ = run("show", alias, "--view", "all", "--store", store)
        assert (code, "zzUnknown" in out, MARK.search(out)) == (0, False, None)
    found = set(MARK.findall(kept))
    assert [made for made in marks.made if made.partition(" ")[0] not in found] == []
    assert run("check", "--store", store)[0] == 0
    for alias in aliases:
        sent = asyncio.run(requests_of(alias, store))
        assert ("go on" in sent, "zzUnknown" in sent, MARK.search(sent)) == (True, False, None)


@pytest.mark.rule("IO-2", "FS-7")
@pytest.mark.parametrize("path", ["claude-code/1.0", "claude-code/2.1", "claude-code/compacted", "pi/1", "pi/3"])
def test_an_unknown_key_goes_back_to_its_place_in_the_program_it_came_from(run: Run, tmp_path: Path, path: str) -> None:
    """And comes again, in the same objects; the places that an export has none of are named in docs/moving.md."""
    program, marks = CASES[path], Marks()
    store, other = f"sqlite:///{tmp_path}/marked.db", f"sqlite:///{tmp_path}/other.db"
    alias = imported(run, program, copied(path, tmp_path / "marked", marks), store)[0]
    file = tmp_path / "out.jsonl"
    words = ("--format", program, "--keep-secrets", "--out", str(file))
    assert run("export", alias, *words, "--store", store)[0] == 0
    assert imported(run, program, file, other) == [alias]
    first, again = (json.dumps(list(kept_of(whole_of(run, alias, one)))) for one in (store, other))
    lost = set(MARK.findall(first)) - set(MARK.findall(again))
    assert [made.partition(" ")[2] for made in marks.made if made.partition(" ")[0] in lost] == UNPLACED.get(path, [])
    before, after = (spoken(whole_of(run, alias, one)) for one in (store, other))
    assert {**after, "session": before["session"]} == before


@pytest.mark.rule("IO-2", "FS-7")
def test_what_each_line_of_an_answer_says_again_is_kept_once_and_each_block_keeps_its_own(
    run: Run, tmp_path: Path
) -> None:
    """Claude Code repeats the usage on every line of an answer, and says of each call who made it."""
    caller, tier = {"type": "direct"}, {"service_tier": "standard"}
    lines: list[dict[str, Any]] = [{"type": "user", "uuid": "u", "message": {"role": "user", "content": "Look."}}]
    for number in range(4):
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {}, "caller": caller}
        said = {"id": "m", "role": "assistant", "model": "x", "content": [call], "usage": {"input_tokens": 1, **tier}}
        if number in (1, 2):
            said["content"] = [{"type": "text", "text": "And there."}]
        above = f"a{number - 1}" if number else "u"
        lines.append({"type": "assistant", "uuid": f"a{number}", "parentUuid": above, "message": said})
    file, store = tmp_path / "s.jsonl", f"sqlite:///{tmp_path}/s.db"
    file.write_text("".join(json.dumps({**line, "sessionId": "s"}) + "\n" for line in lines))
    [alias] = imported(run, "claude-code", file, store)
    code, out, _ = run("export", alias, "--format", "claude-code", "--store", store)
    message = json.loads(out.splitlines()[1])["message"]
    assert [block.get("caller") for block in message["content"]] == [caller, None, None, caller]
    assert (code, message["usage"]["service_tier"]) == (0, "standard")
    kept = [record for data in kept_of(whole_of(run, alias, store)) for record in data["data"]["records"]]
    usage, made = {"usage": tier}, {"content": [{"type": "tool_use", "caller": caller}], "usage": tier}
    assert [record["rest"]["message"] for record in kept if record["type"] == "rest"] == [made, usage, made]
