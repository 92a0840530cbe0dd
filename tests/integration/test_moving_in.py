"""Sessions of other programs, taken in as they lie on disk by ``clew import --from``."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command_line import Run, run
from tests.integration.moved_in import PROGRAMS, exported, told

__all__ = ["run"]

CASES = {
    "claude-code/2.1": "claude-code",
    "claude-code/1.0": "claude-code",
    "codex/0.80": "codex",
    "codex/old": "codex",
    "pi/3": "pi",
    "pi/1": "pi",
    "opencode/files": "opencode",
}
MAIN = {"claude-code": "claude-code/2.1", "codex": "codex/0.80", "pi": "pi/3"}
PLACES = {
    "claude-code": (".claude/projects", "claude-code/2.1"),
    "codex": (".codex", "codex/0.80"),
    "pi": (".pi/agent/sessions", "pi/3"),
    "opencode": ("data/opencode", "opencode/files"),
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def taken(run: Run, program: str, path: Path, *words: str) -> dict[str, Any]:
    """The one session that came, as the report tells of it."""
    code, out, err = run("import", "--from", program, str(path), "--json", *words)
    assert code == 0, (out, err)
    report = json.loads(out)
    assert report["unread"] == []
    [one] = report["sessions"]
    return dict(one)


def main_file(program: str) -> Path:
    [file] = [file for file in (PROGRAMS / MAIN[program]).rglob("*.jsonl") if file.name not in _BESIDE]
    return file


_BESIDE = ("agent-a1b2c3d4.jsonl", "session_index.jsonl")


@pytest.mark.rule("IO-1")
@pytest.mark.parametrize("path", CASES)
def test_a_session_of_another_program_comes_with_all_that_its_files_say(run: Run, path: str) -> None:
    """Texts, thoughts, calls, results, pictures, usage, times, branches and summaries; the rest is kept and named."""
    golden = json.loads((PROGRAMS / f"{path.replace('/', '_')}.golden.json").read_text())
    one = taken(run, CASES[path], PROGRAMS / path)
    remarks = sorted([remark[key] for key in ("fate", "count", "what", "where")] for remark in one["remarks"])
    first = exported(run, one["session_id"])
    assert {"told": told(first), "remarks": remarks} == golden
    assert run("check")[0] == 0
    again = taken(run, CASES[path], PROGRAMS / path)
    assert (again["session_id"], again["outcome"], again["turns"]) == (one["session_id"], "same", 0)
    assert {**exported(run, one["session_id"]), "exported_at": 0} == {**first, "exported_at": 0}


@pytest.mark.rule("IO-1")
@pytest.mark.parametrize("program", PLACES)
def test_sessions_are_found_where_their_program_keeps_them(run: Run, tmp_path: Path, program: str) -> None:
    """What is there is listed first; then all of it comes, and works in the folder it was made in where that is."""
    place, fixture = PLACES[program]
    assert run("import", "--from", program, "--list")[0] == 2
    shutil.copytree(PROGRAMS / fixture, tmp_path / place)
    code, out, _ = run("import", "--from", program, "--list")
    [line] = out.splitlines()
    id_, rest = line.split("  ", 1)
    assert (code, rest.endswith("/home/ada/maze  The thread")) == (0, True)
    assert run("ls")[0] == 7, "looking makes no store"
    code, out, err = run("import", "--from", program, "--only", id_)
    lines = out.splitlines()
    assert (code, err, lines[0].endswith("The thread"), lines[1]) == (0, "", True, f"1 session of {program}: 1 new")
    assert run("show", f"{program}:{id_}")[0] == 0, "it is known by its old name, too"
    assert run("import", "--from", program, "--only", "nobody")[0] == 2


@pytest.mark.rule("IO-1")
@pytest.mark.parametrize("program", MAIN)
def test_a_session_that_grew_gets_what_is_new(run: Run, tmp_path: Path, program: str) -> None:
    """Cut at any line, and taken in again and again, it ends as one that came whole at once."""
    lines = main_file(program).read_bytes().split(b"\n")
    whole = told(exported(run, taken(run, program, PROGRAMS / MAIN[program])["session_id"]))
    file = tmp_path / f"rollout-x/{main_file(program).name}"
    file.parent.mkdir()
    outcomes, session = [], ""
    store = f"sqlite:///{tmp_path}/other.db"
    for end in (*range(6, len(lines), 8), len(lines)):
        file.write_bytes(b"\n".join(lines[:end]))
        one = taken(run, program, file, "--store", store)
        session = one["session_id"]
        outcomes.append(one["outcome"])
    assert (outcomes[0], set(outcomes[1:]) <= {"same", "grown"}) == ("new", True), outcomes
    code, out, _ = run("export", session, "--keep-secrets", "--store", store)
    grown = told(json.loads(out))
    whole["session"]["title"] = grown["session"]["title"]
    assert (code, grown) == (0, whole)
    assert run("check", "--store", store) == (0, "1 sessions, 0 problems\n", "")


@pytest.mark.rule("IO-1")
def test_what_is_new_stays_out_of_a_session_that_went_on_here(run: Run, tmp_path: Path) -> None:
    """It is told, and nothing is changed."""
    lines = main_file("pi").read_bytes().split(b"\n")
    file = tmp_path / "pi.jsonl"
    file.write_bytes(b"\n".join(lines[:8]))
    session = taken(run, "pi", file)["session_id"]
    assert run("run", "on we go", "--session", session, "--model", "demo/echo")[0] == 0
    before = exported(run, session)
    file.write_bytes(b"\n".join(lines))
    one = taken(run, "pi", file)
    assert (one["session_id"], one["outcome"], one["turns"]) == (session, "apart", 0)
    assert one["why"] == "it was continued here: new content of the file was not imported"
    assert {**exported(run, session), "exported_at": 0} == {**before, "exported_at": 0}


@pytest.mark.rule("IO-1")
def test_subagents_come_as_sessions_below_the_one_that_called_them(run: Run) -> None:
    """From a file of their own, or from lines in the same one."""
    first = "00000000-0000-4000-8000-000000000301"
    for version, said, agent in (("2.1", "Seven.", "a1b2c3d4"), ("1.0", "Four.", first)):
        one = taken(run, "claude-code", PROGRAMS / "claude-code" / version)
        [main] = (PROGRAMS / "claude-code" / version).glob("*/*.jsonl")
        whole = exported(run, f"claude-code:{main.stem}/{agent}")
        assert (whole["session"]["parent_id"], whole["session"]["metadata"]["kind"]) == (one["session_id"], "subagent")
        last = whole["messages"][-1]
        assert [part["data"].get("text") for part in last["parts"]] == [None, said]


@pytest.mark.rule("IO-1")
def test_a_database_of_opencode_says_what_its_files_said(run: Run, tmp_path: Path) -> None:
    """Newer versions keep the same objects as rows."""
    storage = PROGRAMS / "opencode/files/storage"
    file = tmp_path / "opencode.db"
    with closing(sqlite3.connect(file)) as base:
        base.execute(
            "CREATE TABLE session (id, project_id, parent_id, slug, directory, title, version, revert, "
            "time_created, time_updated, time_archived, summary)"
        )
        base.execute("CREATE TABLE message (id, session_id, time_created, data)")
        base.execute("CREATE TABLE part (id, message_id, session_id, data)")
        for one in read(storage.glob("session/*/*.json")):
            times = one["time"]
            base.execute(
                "INSERT INTO session VALUES (?,?,?,?,?,?,?,?,?,?,NULL,NULL)",
                (
                    one["id"],
                    "p",
                    None,
                    "s",
                    one["directory"],
                    one["title"],
                    one["version"],
                    json.dumps(one["revert"]),
                    times["created"],
                    times["updated"],
                ),
            )
        for one in read(storage.glob("message/*/*.json")):
            base.execute(
                "INSERT INTO message VALUES (?,?,?,?)",
                (one.pop("id"), one.pop("sessionID"), one["time"]["created"], json.dumps(one)),
            )
        for one in read(storage.glob("part/*/*.json")):
            base.execute(
                "INSERT INTO part VALUES (?,?,?,?)",
                (one.pop("id"), one.pop("messageID"), one.pop("sessionID"), json.dumps(one)),
            )
        base.commit()
    came = told(exported(run, taken(run, "opencode", file)["session_id"]))
    golden = json.loads((PROGRAMS / "opencode_files.golden.json").read_text())["told"]
    for message in (*came["messages"], *golden["messages"]):
        # What is kept as it is differs in the keys that a row has beside its object.
        message["parts"] = [part for part in message["parts"] if part["type"] != "data-kept"]
    assert came == golden


def read(files: Iterable[Path]) -> list[dict[str, Any]]:
    return [json.loads(file.read_text()) for file in sorted(files)]


@pytest.mark.rule("IO-1")
def test_what_is_no_session_is_told_and_the_others_come(run: Run, tmp_path: Path) -> None:
    """One by one, by its file; a program that is not known, or options that do not go together, are refused."""
    folder = tmp_path / "pi"
    shutil.copytree(PROGRAMS / "pi/1", folder)
    (folder / "empty.jsonl").write_bytes(b"")
    (folder / "packed.jsonl").write_bytes(b"\x28\xb5\x2f\xfd rest")
    code, out, _ = run("import", "--from", "pi", str(folder), "--json")
    report = json.loads(out)
    why = {Path(one["path"]).name: one["why"] for one in report["unread"]}
    assert (code, len(report["sessions"])) == (0, 1)
    assert why == {
        "empty.jsonl": "it contains no messages: it is not a session of pi, or an empty one",
        "packed.jsonl": "the file is compressed; unpack it first, a rollout of Codex with `zstd -d`",
    }
    assert run("import", "--from", "pi", str(folder / "empty.jsonl"))[0] == 2
    for words in (["--list"], ["--only", "x"], [], ["--from", "word"]):
        assert run("import", *words)[0] != 0


@pytest.mark.rule("IO-1")
def test_sessions_of_opencode_2_come_from_the_tables_that_it_keeps(run: Run, tmp_path: Path) -> None:
    """A new store of it has none of the older tables; a session that it took over is read where it goes on."""
    file = tmp_path / "opencode.db"
    model = {"id": "claude-sonnet-4-5", "providerID": "anthropic"}
    call = {
        "type": "tool",
        "id": "call_1",
        "name": "read",
        "state": {"status": "completed", "input": {"path": "map"}, "content": [{"type": "text", "text": "a door"}]},
    }
    thought = {"type": "reasoning", "text": "Look.", "native": {"anthropic": {"signature": "seal"}}}
    rows: list[tuple[str, dict[str, Any]]] = [
        ("agent-switched", {"agent": "build"}),
        ("user", {"text": "Where is the thread?", "files": [{"uri": PIXEL, "mime": "image/png", "name": "a.png"}]}),
        ("assistant", {"model": model, "content": [thought, call], "tokens": {"input": 10, "output": 2}, "cost": 0.5}),
        ("assistant", {"model": model, "content": [{"type": "text", "text": "At the door."}], "finish": "stop"}),
        ("synthetic", {"text": "The door opened."}),
        ("compaction", {"status": "completed", "reason": "manual", "summary": "A thread.", "recent": "user: Where?"}),
        ("shell", {"command": "ls", "output": {"output": "map"}, "status": "exited"}),
        ("user", {"text": "Go on."}),
        ("assistant", {"model": model, "content": [], "error": {"type": "provider.auth", "message": "no key"}}),
        ("idle", {"outcome": "failed"}),
    ]
    with closing(sqlite3.connect(file)) as base:
        base.execute("CREATE TABLE session_v2 (id, parent_id, directory, title, version, time_created, time_updated)")
        base.execute("CREATE TABLE session_message (id, session_id, type, seq, time_created, data)")
        base.execute("INSERT INTO session_v2 VALUES ('ses_2','','/home/ada','The thread','2.0.25',1764000000000,1)")
        for seq, (kind, data) in enumerate(rows, start=1):
            data["time"] = {"created": 1_764_000_000_000 + seq}
            values = (f"msg_{seq:02}", "ses_2", kind, seq, data["time"]["created"], json.dumps(data))
            base.execute("INSERT INTO session_message VALUES (?,?,?,?,?,?)", values)
        base.commit()
    came = taken(run, "opencode", file)
    whole = exported(run, came["session_id"])
    messages = [{"id": f"m{seq}", "type": kind, **data} for seq, (kind, data) in enumerate(rows)]
    export = {"info": {"id": "ses_3", "location": {"directory": "/home/ada"}}, "messages": messages}
    (tmp_path / "export.json").write_text(json.dumps(export))
    other = exported(run, taken(run, "opencode", tmp_path / "export.json")["session_id"])
    parts = ([[part["data"] for part in row["parts"]] for row in one["messages"]] for one in (whole, other))
    kinds, of_export = (
        [[part.get("text", part["type"]) for part in held if part["type"] != "data-kept"] for held in one]
        for one in parts
    )
    assert kinds == of_export
    assert kinds == [
        ["Where is the thread?", "file"],
        ["step-start", "Look.", "tool-read", "step-start", "At the door."],
        ["The door opened."],
        ["data-compaction"],
        ["$ ls\nmap"],
        ["Go on."],
        ["step-start"],
    ]
    assert [(turn["kind"], turn["status"]) for turn in whole["turns"]] == [
        ("normal", "completed"),
        ("compaction", "completed"),
        ("normal", "completed"),
        ("normal", "failed"),
    ]
    assert [(step["usage"]["input"], step["cost_usd"]) for step in whole["steps"]] == [(10, 0.5)]
    assert taken(run, "opencode", file)["outcome"] == "same"


@pytest.mark.rule("IO-1")
def test_an_answer_is_paid_once_wherever_its_lines_stand(run: Run, tmp_path: Path) -> None:
    """Hooks put their lines between those of an answer, and each of those repeats what it used; the last knows it."""
    lines = [claude("u1", None, "user", content="Look")]
    for number, before in enumerate(("u1", "hook1", "hook2"), start=1):
        call = {"type": "tool_use", "id": f"c{number}", "name": "Read", "input": {}}
        usage = {"input_tokens": 100, "output_tokens": number}
        said = {"id": "msg_1", "model": "claude-sonnet-4-5", "usage": usage, "content": [call]}
        lines.append(claude(f"a{number}", before, "assistant", **said))
        lines.append(claude(f"hook{number}", f"a{number}", "progress"))
    # It stands there once more, below another line.
    lines.append({**lines[-2], "uuid": "a4", "parentUuid": "u1"})
    file = tmp_path / "s.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    whole = exported(run, taken(run, "claude-code", file)["session_id"])
    assert [(step["usage"]["input"], step["usage"]["output"]) for step in whole["steps"]] == [(100, 3)]
    answers = [row for row in whole["messages"] if row["role"] == "assistant"]
    calls = [[part["data"]["toolCallId"] for part in row["parts"] if "toolCallId" in part["data"]] for row in answers]
    assert calls == [["c1", "c2", "c3"], ["c3"]]


def claude(own: str, parent: str | None, kind: str, **message: Any) -> dict[str, Any]:
    said = {"message": {"role": kind, **message}} if message else {}
    return {"type": kind, "uuid": own, "parentUuid": parent, "timestamp": "2026-02-01T10:00:00Z", **said}


@pytest.mark.rule("IO-1")
def test_a_prompt_of_codex_with_a_picture_comes_once(run: Run, tmp_path: Path) -> None:
    """The item has marks around the picture, and the event that says it again has not."""
    texts = ["<image name=[Image #1] path=/a.png>", PIXEL, "</image>", "What ", "is it?"]
    blocks = [
        {"type": "input_image", "image_url": said} if said == PIXEL else {"type": "input_text", "text": said}
        for said in texts
    ]
    spawned = {"thread_spawn": {"parent_thread_id": "above", "depth": 1}}
    spent = {"total_token_usage": {"input_tokens": 5}, "last_token_usage": {"input_tokens": 5}}
    payloads: list[tuple[str, dict[str, Any]]] = [
        ("session_meta", {"id": "s", "timestamp": "2026-02-01T10:00:00Z", "source": {"subagent": spawned}}),
        ("response_item", {"type": "message", "role": "user", "content": blocks}),
        ("event_msg", {"type": "user_message", "message": "What is it?", "local_images": ["/a.png"]}),
        ("event_msg", {"type": "token_count", "info": spent}),
    ]
    file = tmp_path / "rollout-s.jsonl"
    file.write_text("".join(json.dumps({"type": kind, "payload": payload}) + "\n" for kind, payload in payloads))
    came = taken(run, "codex", file)
    whole = exported(run, came["session_id"])
    [row] = whole["messages"]
    assert (whole["session"]["metadata"]["kind"], whole["session"]["metadata"]["came_from"]["parent"]) == (
        "subagent",
        "above",
    )
    kept = [part["data"] for part in row["parts"] if part["data"]["type"] != "data-kept"]
    assert [part.get("text", part["type"]) for part in kept] == ["file", "What ", "is it?"]
    assert came["title"] == "What"
    lost = [remark["what"] for remark in came["remarks"] if remark["fate"] == "lost"]
    assert lost == ["tokens of calls without a response, such as summaries: not counted"]


@pytest.mark.rule("IO-1")
def test_sessions_without_an_id_are_not_taken_for_each_other(run: Run, tmp_path: Path) -> None:
    """Nor are two whose long ids begin alike; and a pipe among the files is passed over, not waited for."""
    ids = (None, None, "x" * 200 + "1", "x" * 200 + "2")
    for number, id_ in enumerate(ids):
        line = {**claude("u", None, "user", content=f"Door {number}"), **({"sessionId": id_} if id_ else {})}
        (tmp_path / f"{number}.jsonl").write_text(json.dumps(line) + "\n")
    for place in ("agent-1.jsonl", "pipe.jsonl", "0/subagents/agent-2.jsonl"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        os.mkfifo(tmp_path / place)
    stray = {**claude("u", None, "user", content="Alone"), "isSidechain": True, "agentId": "3", "sessionId": "gone"}
    (tmp_path / "agent-3.jsonl").write_text(json.dumps(stray) + "\n")
    for outcome in ("new", "same"):
        code, out, _ = run("import", "--from", "claude-code", str(tmp_path), "--json")
        report = json.loads(out)
        came = {one["title"]: one["outcome"] for one in report["sessions"]}
        assert (code, came) == (0, dict.fromkeys([f"Door {number}" for number in range(4)], outcome))
        assert [(Path(one["path"]).name, one["why"]) for one in report["unread"]] == [
            ("agent-3.jsonl", "it contains only subagents; their session is in a file that is not next to it")
        ]


@pytest.mark.rule("IO-1")
def test_what_a_fork_copied_is_counted_in_the_session_it_came_from(run: Run, tmp_path: Path) -> None:
    """Claude Code says of each line whose it was; the fork is a session below the first."""
    usage = {"input_tokens": 7, "output_tokens": 1}
    asked = claude("u1", None, "user", content="Look")
    said = claude("a1", "u1", "assistant", id="msg_1", model="claude-x", usage=usage, content="A door.")
    more = claude("a2", "a1", "assistant", id="msg_2", model="claude-x", usage=usage, content="And a wall.")
    forked = {"forkedFrom": {"sessionId": "first", "messageUuid": "a1"}}
    files = {"first": [asked, said], "second": [{**asked, **forked}, {**said, **forked}, more]}
    for name, lines in files.items():
        text = "".join(json.dumps({**line, "sessionId": name}) + "\n" for line in lines)
        (tmp_path / f"{name}.jsonl").write_text(text)
    assert run("import", "--from", "claude-code", str(tmp_path))[0] == 0
    first, second = (exported(run, f"claude-code:{name}") for name in files)
    assert [[step["usage"]["input"] for step in one["steps"]] for one in (first, second)] == [[7], [7]]
    assert second["session"]["parent_id"] == first["session"]["id"]


@pytest.mark.rule("IO-1")
def test_what_a_file_says_of_itself_is_one_line_without_escapes(run: Run, tmp_path: Path) -> None:
    line = {**claude("u", None, "user", content="Look"), "sessionId": "s\n\x1b[2Jx", "cwd": "/a\nses_1  new  \u202eb"}
    (tmp_path / "a\nb.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "c\nd.jsonl").write_text("{}\n")
    for words, lines in ((["--list"], 2), ([], 3), ([], 3)):
        code, out, _ = run("import", "--from", "claude-code", str(tmp_path), *words)
        assert (code, len(out.splitlines())) == (0, lines)
        assert out.replace("\n", "").isprintable()


@pytest.mark.rule("IO-1")
def test_a_title_that_names_a_line_of_another_file_is_not_this_sessions(run: Run, tmp_path: Path) -> None:
    """Claude Code wrote what it calls one session into the file of another, with the line that it ends with."""
    file = tmp_path / "s.jsonl"
    titles = []
    for leaf in ("elsewhere", "u"):
        named = {"type": "summary", "summary": "Doors", "leafUuid": leaf}
        asked = {**claude("u", None, "user", content="Look"), "sessionId": leaf}
        file.write_text(json.dumps(named) + "\n" + json.dumps(asked) + "\n")
        titles.append(taken(run, "claude-code", file)["title"])
    assert titles == ["Look", "Doors"]
