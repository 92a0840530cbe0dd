"""What clew does not understand in a file of sessions survives every write, where it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clew.session.history.check import check
from clew.store.files import folder
from clew.testing.scripted import call, say
from tests.readers import reader_003

from . import jsonl_sessions
from .jsonl_sessions import ULID, place
from .test_sessions_json import UUID, ask, engine, path_of

MOLF: dict[str, Any] = {
    "sessionId": UUID,
    "name": "Boats",
    "workerId": "worker-1",
    "workspaceId": "harbour",
    "createdAt": 1739268000000,
    "lastActiveAt": 1739268003000,
    "config": {"llm": {"model": "a"}, "behavior": {"maxSteps": 10}},
    "metadata": {"client": "tui"},
    "messages": [
        {"id": "m1", "role": "user", "content": "Which boats are in?", "timestamp": 1739268000000},
        {
            "id": "m2",
            "role": "assistant",
            "content": "I will look.",
            "toolCalls": [{"toolCallId": "c1", "toolName": "bash", "args": {"command": "ls"}, "truncated": False}],
            "usage": {"inputTokens": 30, "outputTokens": 7, "reasoningTokens": 2, "cost": {"usd": 0.5}},
            "model": "test/model",
            "timestamp": 1739268001000,
        },
        {
            "id": "m3",
            "role": "tool",
            "content": "argo",
            "toolCallId": "c1",
            "toolName": "bash",
            "timestamp": 1739268002000,
        },
        {"id": "m4", "role": "assistant", "content": "The argo.", "rating": {"stars": 5}, "timestamp": 1739268003000},
        {"id": "m5", "role": "user", "content": "kept as context", "synthetic": True, "summary": True, "timestamp": 1},
        {"id": "m6", "role": "assistant", "content": "They looked.", "summary": True, "by": "x", "timestamp": 2},
        {"id": "m7", "role": "user", "content": "go on", "timestamp": 1739268004000},
        {
            "id": "m8",
            "role": "assistant",
            "content": "",
            "toolCalls": [{"toolCallId": "c2", "toolName": "bash", "args": {"command": "pwd"}, "result": "/"}],
            "timestamp": 1739268005000,
        },
    ],
}


@pytest.fixture(autouse=True)
def _no_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder, "_sync", lambda fd: None)


def own(message: dict[str, Any]) -> dict[str, Any]:
    """What a program that knows nothing of clew sees in a message."""
    return {key: value for key, value in message.items() if key not in ("clew", "check")}


def write(tmp_path: Path, document: Any) -> Path:
    path = path_of(tmp_path, UUID)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


@pytest.mark.rule("FS-7")
async def test_a_json_file_of_another_program_keeps_every_key_of_its_own(tmp_path: Path) -> None:
    """Of the file, messages, calls, results and usage, under the same names, after every write and reload."""
    path = write(tmp_path, MOLF)
    async with engine(tmp_path, say("Still there."), say("Yes.")) as e:
        shown = await e.messages(UUID, view="all")
        [first, second] = [part for message in shown for part in message.parts if "toolCallId" in part]
        assert first == {
            "type": "tool-bash",
            "toolCallId": "c1",
            "state": "output-available",
            "input": {"command": "ls"},
            "output": "argo",
        }
        assert (second["input"], second["output"]) == ({"command": "pwd"}, "/")
        assert [" ".join(message.texts) for message in shown if message.role == "user"] == [
            "Which boats are in?",
            "go on",
        ]
        assert await check(e.store) == []
        for prompt in ("And now?", "Sure?"):
            await ask(e, UUID, prompt, model="test/model")
            read = json.loads(path.read_text())
            assert [own(message) for message in read["messages"]][:8] == MOLF["messages"]
        await e.rename_session(UUID, "Ships")
        assert await check(e.store) == []
    async with engine(tmp_path) as e:
        assert (await e.messages(UUID, view="all"))[: len(shown)] == shown
        assert await check(e.store) == []
        await e.archive_session(UUID)
    read = json.loads(path.read_text())
    assert [own(message) for message in read["messages"]][:8] == MOLF["messages"]
    kept = {key: read[key] for key in MOLF if key not in ("messages", "lastActiveAt")}
    assert kept == {key: MOLF[key] for key in kept} | {"name": "Ships"}
    assert isinstance(read["lastActiveAt"], int)
    assert read["lastActiveAt"] > MOLF["lastActiveAt"]


def as_javascript(number: str) -> float:
    """A number as JavaScript writes it again."""
    return int(float(number)) if float(number).is_integer() else float(number)


@pytest.mark.rule("FS-7")
@pytest.mark.parametrize("separators", [None, (",", ":")])
async def test_a_file_that_another_program_wrote_again_is_no_damage(tmp_path: Path, separators: Any) -> None:
    """As JavaScript does it: ``1.0`` is ``1``. Keys that it added stay, also inside others; so do its new messages."""
    async with engine(tmp_path, say("one")) as e:
        session = await e.create_session(metadata={"workerId": "w", "workspaceId": "s", "weight": 2.0})
        await ask(e, session.id, "a")
        before = await e.messages(session.id)
    path = path_of(tmp_path, session.id)

    def rewrite(change: Any) -> dict[str, Any]:
        document = json.loads(path.read_text(), parse_float=as_javascript)
        change(document)
        path.write_text(json.dumps(document, separators=separators))
        return document

    rewrite(lambda document: None)
    async with engine(tmp_path) as e:
        assert await check(e.store) == []
        assert await e.messages(session.id) == before

    def add(document: dict[str, Any]) -> None:
        document["lastActiveAt"] = 5
        user, answer = document["messages"]
        user["rating"] = {"stars": 5}
        answer["usage"]["cost"] = 0.5
        document["messages"].append({"role": "user", "content": "mine", "id": "m1"})

    changed = rewrite(add)
    async with engine(tmp_path, say("two")) as e:
        assert await check(e.store) == []
        await ask(e, session.id, "b", model="test/model")
        texts = [" ".join(message.texts) for message in await e.messages(session.id)]
        assert texts == ["a", "one", "mine", "b", "two"]
    for _ in range(2):
        read = json.loads(path.read_text())
        assert [own(message) for message in read["messages"]][:3] == [own(one) for one in changed["messages"]]
        async with engine(tmp_path) as e:
            assert await check(e.store) == []
            await e.rename_session(session.id, "again")
    assert not (tmp_path / "store" / "clew" / "damaged").exists()


@pytest.mark.rule("FS-7")
async def test_what_cannot_be_kept_in_its_place_is_named(tmp_path: Path) -> None:
    """A file whose messages are no list is not written over; a result of no call is kept aside and told."""
    strange = [{"role": "tool", "content": "x", "toolCallId": "nobody"}, {"role": "robot", "content": "y"}, 7]
    path = write(tmp_path, MOLF | {"messages": {"m1": {"role": "user"}}})
    async with engine(tmp_path) as e:
        assert [problem.session_id for problem in await check(e.store)] == [UUID]
    write(tmp_path, MOLF | {"messages": [*MOLF["messages"], *strange]})
    for _ in range(2):
        async with engine(tmp_path, say("ok")) as e:
            assert len(await check(e.store)) == 3
            await e.rename_session(UUID, "z")
        kept = [own(one) if isinstance(one, dict) else one for one in json.loads(path.read_text())["clew"]["aside"]]
        assert sorted(map(str, kept)) == sorted(map(str, strange))


METADATA: dict[str, Any] = {
    "id": ULID,
    "name": "Boats",
    "createdAt": 1739268000000,
    "lastMessageAt": "2025-02-11T10:00:03Z",
    "model": {"provider": "test", "name": "model"},
    "messageCount": 2,
    "source": "slack",
    "cronJobId": "j1",
    "color": {"of": ["x", {"y": 1.0}]},
    "metrics": {"inputTokens": 1, "latency": {"p50": 12.0}},
}
LOG: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "text", "text": "Which?", "lang": "en"}], "rating": {"stars": 5}},
    {"role": "assistant", "content": [{"type": "text", "text": "The argo."}, {"type": "picture", "of": "argo"}]},
]


def records_of(messages: list[dict[str, Any]]) -> str:
    stamp = "2025-02-11T10:00:00Z"
    head = {"recordType": "message", "schemaVersion": 1}
    records = [{**head, "seq": seq, **one, "timestamp": stamp} for seq, one in enumerate(messages, 1)]
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.mark.rule("FS-7")
async def test_the_metadata_file_of_another_program_keeps_every_key_of_its_own(tmp_path: Path) -> None:
    """Also inside ``metrics``, and values that clew does not understand; so does the log."""
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    (at / "session.jsonl").write_text(records_of(LOG))
    (at / "metadata.json").write_text(json.dumps(METADATA))
    async with jsonl_sessions.engine(tmp_path, say("Still.")) as e:
        await ask(e, ULID, "And now?", model="test/model")
        branched = await e.branch(ULID, (await e.messages(ULID))[-2].id)
        assert await check(e.store) == []
        copied = (await e.messages(branched.id))[0]
    read = json.loads((at / "metadata.json").read_text())
    assert {key: read[key] for key in METADATA if key not in ("lastMessageAt", "messageCount", "metrics")} == {
        key: METADATA[key] for key in METADATA if key not in ("lastMessageAt", "messageCount", "metrics")
    }
    assert read["metrics"]["latency"] == {"p50": 12.0}
    assert read["metrics"]["inputTokens"] != 1
    assert (at / "session.jsonl").read_text().startswith(records_of(LOG))
    assert copied.metadata["records"] == {"1": {"rating": {"stars": 5}, "content": {"0": {"lang": "en"}}}}


@pytest.mark.rule("FS-7")
async def test_files_of_a_log_that_another_program_wrote_again_are_no_damage(tmp_path: Path) -> None:
    """The metadata as JavaScript writes it, with a key more; the log with other spaces."""
    async with jsonl_sessions.engine(tmp_path, say("one"), say("two")) as e:
        session = await e.create_session(metadata={"weight": 2.0})
        await ask(e, session.id, "a")
        before = await e.messages(session.id)
    at = place(tmp_path, session.id)
    found = json.loads((at / "metadata.json").read_text(), parse_float=as_javascript)
    (at / "metadata.json").write_text(json.dumps(dict(sorted({**found, "pinned": True}.items())), indent=2))
    lines = [json.loads(line) for line in (at / "session.jsonl").read_text().splitlines()]
    (at / "session.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with jsonl_sessions.engine(tmp_path, say("two")) as e:
        assert await check(e.store) == []
        assert await e.messages(session.id) == before
        await ask(e, session.id, "b")
    assert json.loads((at / "metadata.json").read_text())["pinned"] is True
    assert not (tmp_path / "store" / "clew" / "damaged").exists()


@pytest.mark.rule("FS-7", "FS-2")
@pytest.mark.parametrize("torn", [b'{"recordType":"mess', b'{"recordType":"message","seq":7,"content":[{"te', b"{\xc3"])
async def test_after_a_torn_line_the_next_append_leaves_only_whole_records(tmp_path: Path, torn: bytes) -> None:
    """A reader that allows for a torn last line, and for none before it, reads all of the log."""
    async with jsonl_sessions.engine(tmp_path, say("one")) as e:
        session = await e.create_session()
        await ask(e, session.id, "a")
    at = place(tmp_path, session.id)
    with (at / "session.jsonl").open("ab") as log:
        log.write(torn)
    async with jsonl_sessions.engine(tmp_path, [call("ls", {"path": "."})], say("two")) as e:
        await ask(e, session.id, "b")
        assert await check(e.store) == []
    for line in (at / "session.jsonl").read_text().splitlines():
        json.loads(line)
    said = [(role, said) for role, said in reader_003.build_context(at) if role != "toolResult"]
    assert [one for one in said if one[0] == "user"] == [("user", ["a"]), ("user", ["b"])]
    assert said[-1] == ("assistant", ["two"])
