"""A reader of JSONL sessions, written from the description of the format alone. It knows nothing of clew.

Records it does not know it passes over, as it does a last line that was cut short.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KEYS = {
    "message": {"recordType", "schemaVersion", "seq", "role", "content", "timestamp"},
    "compaction": {
        *("recordType", "schemaVersion", "seq", "firstKeptSeq", "summary", "tokensBefore"),
        *("readFiles", "modifiedFiles", "timestamp"),
    },
}


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Every record of the two kinds, in order; each as the description wants it."""
    found = []
    last = 0
    for line in (folder / "session.jsonl").read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        assert record["seq"] > last, "numbers must grow"
        last = record["seq"]
        if record["recordType"] not in KEYS:
            continue
        assert KEYS[record["recordType"]] <= set(record), record
        assert record["schemaVersion"] == 1
        if record["recordType"] == "message":
            check_message(record)
        found.append(record)
    return found


def check_message(record: dict[str, Any]) -> None:
    assert record["role"] in ("user", "assistant", "toolResult")
    assert isinstance(record["content"], list)
    for block in record["content"]:
        if block["type"] == "text":
            assert isinstance(block["text"], str)
        else:
            assert block["type"] == "toolCall"
            assert isinstance(block["id"], str)
            assert isinstance(block["name"], str)
            assert isinstance(block["arguments"], dict)
    if record["role"] == "toolResult":
        assert isinstance(record["toolCallId"], str)
        assert isinstance(record["isError"], bool)


def read_metadata(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "metadata.json").read_text())
    for key in ("id", "createdAt", "lastMessageAt", "model", "messageCount", "source"):
        assert key in found, key
    assert found["source"] in ("interactive", "cron")
    return found


def build_context(folder: Path) -> list[tuple[str, Any]]:
    """What a model would be sent: (role, what was said) for each message."""
    records = read_records(folder)
    compactions = [record for record in records if record["recordType"] == "compaction"]
    messages = [record for record in records if record["recordType"] == "message"]
    context: list[tuple[str, Any]] = []
    if compactions:
        newest = compactions[-1]
        context.append(("summary", newest["summary"]))
        first, own = newest["firstKeptSeq"], newest["seq"]
        messages = [record for record in messages if record["seq"] >= first or record["seq"] > own]
    return context + [(record["role"], said(record)) for record in messages]


def said(record: dict[str, Any]) -> Any:
    """The texts and calls of a message."""
    return [
        block["text"] if block["type"] == "text" else (block["name"], block["arguments"]) for block in record["content"]
    ]
