"""A stream file whose removal never reached the disk: it is back after a loss of power, without its newest lines."""

from __future__ import annotations

from pathlib import Path

import pytest

import clew
from clew.history.check import check
from clew.testing.chunks import text
from clew.testing.scribe import Scribe
from clew.transcript import chunk as c
from clew.transcript.usage import Usage


@pytest.mark.rule("FS-2")
async def test_a_stream_file_that_is_back_says_nothing_of_a_message_that_settled(tmp_path: Path) -> None:
    """Its chunks are in the parts already: the message is as it was settled, and nothing is wrong."""
    url = f"jsonl:{tmp_path}/store"
    async with clew.open(url, config=clew.Config()) as engine:
        scribe = await Scribe.create(engine.store)
        opened = await scribe.prompt("tell me")
        recorder = opened.recorder()
        said = text("the thread leads out of the labyrinth, and back")
        await recorder.send(c.Start(message_id=recorder.message.id))
        await recorder.send(c.StartStep())
        for chunk in said[:-1]:
            await recorder.send(chunk)
            await recorder.flush()
        stream = tmp_path / "store" / "sessions" / scribe.session_id / "stream.jsonl"
        left = stream.read_bytes()
        assert b'"recordType":"chunks"' in left
        await recorder.send(said[-1])
        await recorder.flush()  # folds: the line that says so goes to the stream file alone
        await recorder.send(c.FinishStep())
        await recorder.end_step(opened.step(recorder.message.id, Usage(3, 2)))
        await recorder.close(*opened.settling())
        settled = await engine.messages(scribe.session_id, view="all")
    assert not stream.exists()
    stream.write_bytes(left)
    async with clew.open(url, config=clew.Config()) as engine:
        assert await engine.messages(scribe.session_id, view="all") == settled
        assert await check(engine.store) == []
    assert not stream.exists()
