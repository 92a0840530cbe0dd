"""What programs of the format keep beyond the document's example: totals, the next number, the name of a result's tool.

Field names and types as joe5saia/agent writes them (003:84, 003:104; issue 31).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clew.session.history.check import check
from clew.testing.scripted import call, say, then
from clew.transcript.usage import Usage
from tests.acceptance.jsonl_sessions import ULID, ask, engine, no_sync, place
from tests.readers import reader_003

__all__ = ["no_sync"]

pytestmark = pytest.mark.rule("FS-1", "FS-7")

_TOTALS = {"totalDurationMs", "totalTokens", "totalToolCalls", "totalTurns"}
_STAMP = "2025-02-11T10:00:0{}Z"


def metadata_of(at: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((at / "metadata.json").read_text())
    return {key: value for key, value in found.items() if key not in ("clew", "check")}


def has_null(value: Any) -> bool:
    nested = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(map(has_null, nested))


def totals(at: Path) -> tuple[int, int, int]:
    metrics = metadata_of(at)["metrics"]
    return metrics["totalTokens"], metrics["totalToolCalls"], metrics["totalTurns"]


async def test_metadata_has_the_totals_and_the_next_number_of_other_programs(tmp_path: Path) -> None:
    """003:104 - whole numbers and no nulls, of a new session, after turns, a rewind, a reload and a branch."""
    look = [call("read", {"path": "no.txt"}), call("ls", {"path": "."})]
    script = [
        then(*look, usage=Usage(10, 5)),
        then(say("one"), usage=Usage(20, 5)),
        then(say("two"), usage=Usage(1, 1)),
    ]
    async with engine(tmp_path, *script) as e:
        session = await e.create_session()
        at = place(tmp_path, session.id)
        assert totals(at) == (0, 0, 0)
        assert (metadata_of(at)["nextSeq"], metadata_of(at)["metrics"]["totalDurationMs"]) == (1, 0)
        await ask(e, session.id, "look")
        assert totals(at) == (40, 2, 1)
        await ask(e, session.id, "more")
        assert totals(at) == (42, 2, 2)
        await e.rewind(session.id, (await e.messages(session.id))[-2].id, mode="edit")
        # What was taken back was paid for, too.
        assert totals(at) == (42, 2, 2)
        branch = await e.branch(session.id, (await e.messages(session.id))[0].id)
        assert totals(place(tmp_path, branch.id)) == (0, 0, 1)
    found = metadata_of(at)
    assert not has_null(found)
    assert found["metrics"].keys() >= _TOTALS
    assert all(type(found["metrics"][key]) is int and found["metrics"][key] >= 0 for key in _TOTALS)
    assert found["nextSeq"] == 1 + max(
        json.loads(line)["seq"] for line in (at / "session.jsonl").read_text().splitlines()
    )
    async with engine(tmp_path) as e:
        assert await check(e.store) == []
        await e.rename_session(session.id, "again")
    assert totals(at) == (42, 2, 2)


async def test_a_result_names_its_tool(tmp_path: Path) -> None:
    """003:84 - readers that show results without looking for their call need it; the conversation stays the same."""
    async with engine(tmp_path, [call("read", {"path": "no.txt"})], say("one")) as e:
        session = await e.create_session()
        await ask(e, session.id, "look")
        before = await e.messages(session.id)
    at = place(tmp_path, session.id)
    results = [record for record in reader_003.read_records(at) if record.get("role") == "toolResult"]
    assert [record["toolName"] for record in results] == ["read"]
    async with engine(tmp_path) as e:
        assert await e.messages(session.id) == before
        assert await check(e.store) == []


def foreign_log() -> str:
    head = {"recordType": "message", "schemaVersion": 1}
    calls = [{"type": "toolCall", "id": f"tc_{n}", "name": "bash", "arguments": {}} for n in (1, 2)]
    records: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {"role": "assistant", "content": calls},
        {"role": "toolResult", "content": [{"type": "text", "text": "a"}], "toolCallId": "tc_1", "toolName": "bash"},
        {"role": "toolResult", "content": [{"type": "text", "text": "b"}], "toolCallId": "tc_2", "toolName": "other"},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
    ]
    lines = ({**head, "seq": n, **one, "timestamp": _STAMP.format(n)} for n, one in enumerate(records, 1))
    return "".join(json.dumps(line) + "\n" for line in lines)


async def test_totals_of_another_program_go_on_from_what_it_had_counted(tmp_path: Path) -> None:
    """It knows tokens of turns of which the log says none; they are not lost, nor is what nobody else has."""
    at = place(tmp_path, ULID)
    at.mkdir(parents=True)
    (at / "session.jsonl").write_text(foreign_log())
    metrics = {"totalDurationMs": 9_000, "totalTokens": 500, "totalToolCalls": 2, "totalTurns": 1, "p50": 7}
    written = {
        "id": ULID,
        "name": "Boats",
        "createdAt": _STAMP.format(0),
        "lastMessageAt": _STAMP.format(5),
        "model": "test/model",
        "messageCount": 5,
        "source": "interactive",
        "nextSeq": 6,
        "metrics": metrics,
    }
    (at / "metadata.json").write_text(json.dumps(written))
    async with engine(tmp_path, then(say("yes"), usage=Usage(30, 2))) as e:
        assert await check(e.store) == []
        assert metadata_of(at) == written
        [answer] = [message for message in await e.messages(ULID) if message.role == "assistant"]
        # Only the name that the call does not say is kept.
        assert answer.metadata["records"] == {"4": {"toolName": "other"}}
        await ask(e, ULID, "go on", model="test/model")
        assert totals(at) == (532, 2, 2)
    for _ in range(2):
        async with engine(tmp_path) as e:
            assert await check(e.store) == []
            await e.archive_session(ULID)
        found = metadata_of(at)
        assert (totals(at), found["metrics"]["p50"]) == ((532, 2, 2), 7)
        assert found["metrics"]["totalDurationMs"] >= 9_000
        assert found["nextSeq"] > 6
