"""Sessions as JSONL files that somebody else wrote, damaged or lags behind; and what saving costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import clew
from clew.session.history.check import check
from clew.store.files import folder
from clew.store.files.opening import open_files
from clew.testing.chunks import text, tool_call, tool_output
from clew.testing.clock import FakeClock
from clew.testing.scribe import Scribe
from clew.testing.scripted import Gate, say, wait
from clew.transcript import chunk as c
from tests.acceptance.jsonl_sessions import ULID, ask, engine, no_sync, place, reads, url
from tests.readers import reader_003

__all__ = ["no_sync"]

EXAMPLE = """\
{"recordType":"message","schemaVersion":1,"seq":1,"role":"user","content":[{"type":"text","text":"Which boats are in?"}],"timestamp":"2025-02-11T10:00:00Z"}
{"recordType":"message","schemaVersion":1,"seq":2,"role":"assistant","content":[{"type":"text","text":"I will look."},{"type":"toolCall","id":"tc_1","name":"bash","arguments":{"command":"ls harbour"}}],"timestamp":"2025-02-11T10:00:01Z"}
{"recordType":"message","schemaVersion":1,"seq":3,"role":"toolResult","content":[{"type":"text","text":"boat   sails\\nargo   2"}],"toolCallId":"tc_1","isError":false,"timestamp":"2025-02-11T10:00:02Z"}
{"recordType":"message","schemaVersion":1,"seq":4,"role":"assistant","content":[{"type":"text","text":"One boat is in: the argo, with two sails."}],"timestamp":"2025-02-11T10:00:03Z"}
"""  # noqa: E501 - in the shape of the format's own example

# Others


@pytest.mark.rule("FS-4")
@pytest.mark.parametrize("unit", ["5", "[]", '"kg"', "{}", "[1]", "null"])
async def test_what_another_program_calls_a_unit_keeps_no_session_from_loading(tmp_path: Path, unit: str) -> None:
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    (at / "session.jsonl").write_text(EXAMPLE.replace("}\n", f', "unit": {unit}}}\n'))
    async with engine(tmp_path) as e:
        assert [message.role for message in await e.messages(ULID)] == ["user", "assistant"]


@pytest.mark.rule("FS-1", "FS-4")
async def test_a_session_written_by_hand_loads_and_goes_on(tmp_path: Path) -> None:
    """The description's own example: read as it is, left as it is, and continued below it."""
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    (at / "session.jsonl").write_text(EXAMPLE)
    metadata = {
        "id": ULID,
        "name": "Boats",
        "createdAt": "2025-02-11T10:00:00Z",
        "lastMessageAt": "2025-02-11T10:00:03Z",
        "model": "test/model",
        "messageCount": 4,
        "source": "interactive",
        "color": "green",
    }
    (at / "metadata.json").write_text(json.dumps(metadata))
    async with engine(tmp_path, say("Still one.")) as e:
        [session] = (await e.list_sessions()).sessions
        assert (session.id, session.title) == (ULID, "Boats")
        assert await check(e.store) == []
        before = await e.messages(ULID)
        assert [message.role for message in before] == ["user", "assistant"]
        [bash] = [part for part in before[1].parts if "toolCallId" in part]
        assert bash == {
            "type": "tool-bash",
            "toolCallId": "tc_1",
            "state": "output-available",
            "input": {"command": "ls harbour"},
            "output": "boat   sails\nargo   2",
        }
        assert (at / "session.jsonl").read_text() == EXAMPLE
        assert json.loads((at / "metadata.json").read_text()) == metadata
        await ask(e, ULID, "And now?", model="test/model")
        assert (await e.messages(ULID))[:2] == before
    assert (at / "session.jsonl").read_text().startswith(EXAMPLE)
    context = reader_003.build_context(at)
    assert context[-2:] == [("user", ["And now?"]), ("assistant", ["Still one."])]
    assert len(context) == 6
    assert json.loads((at / "metadata.json").read_text())["color"] == "green"
    async with engine(tmp_path) as e:
        assert (await e.messages(ULID))[:2] == before
        rewound = await e.rewind(ULID, before[0].id, mode="edit")
        assert rewound.draft is not None
        assert await check(e.store) == []


@pytest.mark.rule("FS-1")
@pytest.mark.parametrize("failed", [False, True])
async def test_a_result_written_by_hand_takes_the_place_of_what_the_call_had_given(
    tmp_path: Path, failed: bool
) -> None:
    """The process was gone while the tool ran; whoever brings the result says all of it."""
    store = await open_files("jsonl", tmp_path / "store")
    scribe = await Scribe.create(store)
    opened = await scribe.prompt("look")
    recorder = opened.recorder()
    for chunk in [
        c.Start(message_id=recorder.message.id),
        c.StartStep(),
        *tool_call("x", {}),
        *tool_output("half", preliminary=True),
    ]:
        await recorder.send(chunk)
    await recorder.close(seal=False)
    await store.close()
    at = place(tmp_path, scribe.session_id)
    record = {"recordType": "message", "schemaVersion": 1, "seq": 99, "role": "toolResult", "toolCallId": "c1"}
    record |= {"content": [{"type": "text", "text": "whole"}], "isError": failed, "timestamp": "2025-02-11T10:00:02Z"}
    with (at / "session.jsonl").open("a") as log:
        log.write(json.dumps(record) + "\n")
    async with engine(tmp_path, say("ok")) as e:
        [part] = [
            part for message in await e.messages(scribe.session_id) for part in message.parts if "toolCallId" in part
        ]
        said = (
            {"state": "output-error", "errorText": "whole"}
            if failed
            else {"state": "output-available", "output": "whole"}
        )
        assert part == {"type": "tool-x", "toolCallId": "c1", "input": {}, **said}


@pytest.mark.rule("FS-1")
async def test_a_compaction_written_by_hand_is_an_overlay_here_too(tmp_path: Path) -> None:
    """What it supersedes is hidden, what it keeps is sent, also when that begins inside an answer."""
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    record = {
        "recordType": "compaction",
        "schemaVersion": 1,
        "seq": 5,
        "firstKeptSeq": 4,
        "summary": "They looked at boats.",
        "tokensBefore": 99,
        "readFiles": ["a"],
        "modifiedFiles": [],
        "timestamp": "2025-02-11T10:00:04Z",
    }
    (at / "session.jsonl").write_text(EXAMPLE + json.dumps(record) + "\n")
    async with engine(tmp_path, say("ok")) as e:
        sent = await e.messages(ULID, view="model")
        assert "They looked at boats." in sent[0].parts[0]["text"]
        assert [part.get("text") for message in sent[1:] for part in message.parts if "text" in part] == [
            "One boat is in: the argo, with two sails."
        ]
        assert await check(e.store) == []
        # There was no metadata: it is made from the log.
        assert reader_003.read_metadata(at)["messageCount"] == 4
        await ask(e, ULID, "go on", model="test/model")
        assert await check(e.store) == []


@pytest.mark.rule("FS-2")
async def test_a_bad_line_in_the_middle_costs_that_line_and_is_reported(tmp_path: Path) -> None:
    """The judge names it; everything else is there, and the numbers go on."""
    async with engine(tmp_path, say("one"), say("two"), say("three")) as e:
        session = await e.create_session()
        for prompt in ("a", "b"):
            await ask(e, session.id, prompt)
    log = place(tmp_path, session.id) / "session.jsonl"
    lines = log.read_bytes().split(b"\n")
    [bad] = [n for n, line in enumerate(lines) if b'"text":"one"' in line]
    lines[bad] = b"\xff" * 12 + lines[bad][12:]
    log.write_bytes(b"\n".join(lines))
    async with engine(tmp_path, say("three")) as e:
        assert (session.id, f"line {bad + 1} of session.jsonl does not read") in [
            (problem.session_id, problem.what) for problem in await check(e.store)
        ]
        said = [part["text"] for m in await e.messages(session.id) for part in m.parts if "text" in part]
        assert said == ["a", "b", "two"]
        before = max(json.loads(line)["seq"] for line in lines if reads(line))
        await ask(e, session.id, "c")
    added = [json.loads(line)["seq"] for line in log.read_bytes().split(b"\n") if reads(line)]
    assert sorted(added)[-1] > before
    assert len(set(added)) == len(added)


@pytest.mark.rule("FS-2")
async def test_numbers_go_on_from_the_log_when_the_metadata_lags(tmp_path: Path) -> None:
    """An older metadata file, or none, or half of one: the log decides, and the metadata is brought in line."""
    async with engine(tmp_path, say("one"), say("two")) as e:
        session = await e.create_session(title="before")
        at = place(tmp_path, session.id)
        old = (at / "metadata.json").read_bytes()
        await ask(e, session.id, "a")
        await e.rename_session(session.id, "kept")
    expected = (at / "metadata.json").read_bytes()
    for lagging in (old, None, old[: len(old) // 2]):
        (at / "metadata.json").unlink()
        if lagging is not None:
            (at / "metadata.json").write_bytes(lagging)
        async with engine(tmp_path) as e:
            assert (await e.get_session(session.id)).title == "kept"
            assert _listed(at / "metadata.json") == json.loads(expected) | {"clew": None, "check": None}
    async with engine(tmp_path, say("two")) as e:
        await ask(e, session.id, "b")
    numbers = [json.loads(line)["seq"] for line in (at / "session.jsonl").read_bytes().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1)) or numbers == sorted(set(numbers))


def _listed(metadata: Path) -> dict[str, Any]:
    """Metadata but for what only clew reads, which says when it was written."""
    found: dict[str, Any] = json.loads(metadata.read_bytes())
    return found | {"clew": None, "check": None}


@pytest.mark.rule("FS-1", "SV-3")
async def test_chunks_lie_in_the_stream_file_until_their_message_is_appended(tmp_path: Path) -> None:
    """It is there while the model speaks, and gone when the step has ended; a reader beside sees what was said."""
    gate = Gate()
    async with engine(tmp_path, [say("thread of Ariadne"), wait(gate), say("!")]) as e:
        session = await e.create_session()
        at = place(tmp_path, session.id)
        stream = e.run(session.id, "go")
        async for chunk in stream:
            if chunk["type"] == "text-delta":
                break
        await gate.reached.wait()
        assert (at / "stream.jsonl").exists()
        assert "thread" not in (at / "session.jsonl").read_text()
        async with clew.open(url(tmp_path), config=clew.Config(), read_only=True) as beside:
            said = [part for m in await beside.messages(session.id) for part in m.parts if part.get("text")]
            assert said[-1]["text"] in "thread of Ariadne"
            assert len(said) == 2
        gate.set()
        async for _ in stream:
            pass
        assert not (at / "stream.jsonl").exists()


@pytest.mark.rule("SV-4", "FS-1")
async def test_saving_costs_what_was_said(tmp_path: Path) -> None:
    """Bytes written for each chunk do not grow with the reply."""
    written = 0
    real = folder._write_all

    def counted(fd: int, data: bytes) -> None:
        nonlocal written
        written += len(data)
        real(fd, data)

    costs = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(folder, "_write_all", counted)
        store = await open_files("jsonl", tmp_path / "store")
        for count in (300, 3_000):
            scribe = await Scribe.create(store, clock=FakeClock())
            opened = await scribe.prompt("go")
            recorder = opened.recorder()
            written = 0
            for number, chunk in enumerate(text("word " * count)):
                recorder.write(chunk)
                if number % 10 == 0:
                    await recorder.flush()
            await recorder.close(*opened.settling())
            costs.append(written / count)
        await store.close()
    assert costs[1] <= 1.2 * costs[0], costs
