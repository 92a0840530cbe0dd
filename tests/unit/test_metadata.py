"""Metadata: the known keys are read by name, the rest passes through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import clew
from clew.config import Config
from clew.transcript.message import MessageRow
from clew.transcript.metadata import from_stream, merge
from clew.transcript.session import Model, Session
from clew.transcript.usage import Usage


def row(**metadata: Any) -> MessageRow:
    return MessageRow("m", "s", "user", 1, 1, metadata)


def test_a_message_says_what_its_metadata_says() -> None:
    """Each key by its name."""
    known = row(
        turn_id="t",
        synthetic=True,
        summary=True,
        unattended=True,
        client_message_id="c",
        agent="plan",
        queued_at=5,
        snapshot_id="snap",
        damaged="torn",
        usage={"input": 3},
    )
    flags = (known.is_synthetic, known.is_summary, known.is_attended, known.is_unreadable)
    assert flags == (True, True, False, False)
    ids = (known.turn_id, known.client_message_id, known.asked_agent, known.snapshot_id)
    assert ids == ("t", "c", "plan", "snap")
    assert (known.queued_at, known.damage, known.usage) == (5, "torn", Usage(3))


def test_a_key_of_the_wrong_type_reads_as_one_that_is_not_there() -> None:
    """Anybody may have stored it."""
    odd = row(turn_id=1, synthetic="yes", unattended=1, client_message_id=[], queued_at="x", damaged=True, usage=[])
    none = (odd.turn_id, odd.client_message_id, odd.queued_at, odd.damage, odd.usage)
    assert none == (None, None, None, None, Usage())
    assert (odd.is_synthetic, odd.is_attended, odd.is_unreadable) == (False, True, True)
    session = Session(id="s", agent="a", model=Model("p", "m"), created_at=1, updated_at=1, metadata={"title": 3})
    assert (session.title, session.kind, session.ephemeral, session.system_prompt) == (None, "chat", False, None)


def test_a_stream_sets_neither_what_a_view_adds_nor_what_the_store_sets() -> None:
    """Everything else of it is kept."""
    given = {"turn_id": "t", "usage": {}, "damaged": "no", "mine": {"a": 1}}
    assert from_stream(given) == {"mine": {"a": 1}}
    assert merge({"a": 1, "b": 2}, {"b": 3}, ("a",)) == {"b": 3}


@pytest.mark.rule("ST-5")
@pytest.mark.parametrize("url", ["sqlite:///{}/s.db", "jsonl:///{}/folder"])
async def test_keys_nobody_knows_survive_in_parts_and_metadata(tmp_path: Path, url: str) -> None:
    """Through the library: given, stored, opened again, read, and branched."""
    part = {"type": "text", "text": "hi", "mine": {"deep": [1, None]}, "toolCallId": "not a call"}
    async with clew.open(url.format(tmp_path), config=Config()) as engine:
        session = await engine.create_session(model="demo/echo", metadata={"x-own": {"n": 1}})
        await (await engine.submit(session.id, [part])).wait()
    async with clew.open(url.format(tmp_path), config=Config()) as engine:
        before = await engine.messages(session.id)
        branch = await engine.branch(session.id, before[-1].id)
        assert branch.metadata["x-own"] == (await engine.get_session(session.id)).metadata["x-own"] == {"n": 1}
        assert before[0].parts == (await engine.messages(branch.id))[0].parts == [part]
