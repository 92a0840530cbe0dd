"""A long turn over the wire: it prunes its own old outputs, in one step, and what was sent stays provable."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.provider_cache import AnthropicCache
from bench.wire import blocks_of
from clew.session.api import Engine
from clew.session.history.check import check
from tests.integration.prefixes import characters, common, opened
from tests.integration.wire_server import ANTHROPIC, Arrived, Step, WireServer, ok
from tests.integration.wire_talk import wire

__all__ = ["wire"]

WINDOW = 40_000
STEPS = 27
ENDS = "\n".join(f"## {name}\n- something" for name in ("Goal", "Progress", "Key Decisions", "Next Steps"))


def passage(n: int) -> str:
    """Of a file of its own for each step, so that five of them are the files last read: about 1,000 tokens."""
    return f"this is a line of passage {n}\n" * 130


def reads(wire: WireServer, n: int, used: int) -> None:
    """A step that reads the next passage; the provider counts ``used`` tokens for all it was sent."""
    call = ANTHROPIC.tool_block(0, f"toolu_{n:020}", "read", json.dumps({"path": f"file{n}"}))
    wire.reply(*ok(), ANTHROPIC.start(input_tokens=used), *call, *ANTHROPIC.stop("tool_use"))


def results(body: Any) -> list[str]:
    """The tool results of a request, in order."""
    parts = [part for message in body["messages"] for part in message["content"]]
    texts = [part["content"] for part in parts if part["type"] == "tool_result"]
    return [text if isinstance(text, str) else "".join(one["text"] for one in text) for text in texts]


def stubs(body: Any) -> list[bool]:
    return [text.startswith("[output pruned to save room: about ") for text in results(body)]


async def read_on(wire: WireServer, engine: Engine, session_id: str, folder: Path, used: list[int]) -> str:
    """One turn that reads a file in each step; ``used`` is what is counted for each."""
    for n, count in enumerate(used):
        (folder / f"file{n}").write_text(passage(n))
        reads(wire, n, count)
    wire.reply(*ok(), *ANTHROPIC.text("fine"))
    outcome = await (await engine.submit(session_id, "read them all")).wait()
    assert outcome.status == "completed", outcome
    return outcome.turn_id


@pytest.mark.rule("PR-2", "PR-4", "PR-5")
async def test_a_long_turn_prunes_its_own_old_outputs_once_and_pays_for_no_summary(
    wire: WireServer, tmp_path: Path
) -> None:
    """From 60 % on the oldest go, at once what twelve steps take; the newest quarter stays, and all that is stored."""
    # It is pruned before the 22nd call, after which the provider counts less.
    used = [3_000 + 1_000 * n - (9_000 if n > 20 else 0) for n in range(STEPS)]
    async with opened(wire, "anthropic", tmp_path, window=WINDOW) as (engine, session_id):
        turn_id = await read_on(wire, engine, session_id, tmp_path, used)
        proven = [(await engine.request(turn_id, n)).proven for n in range(STEPS + 1)]
        [_, answer] = await engine.messages(session_id)
        [again] = [message for message in await engine.messages(session_id, view="model") if message.role != "user"]
        branch = await engine.branch(session_id, answer.id)
        [copied] = (await engine.tree(branch.id)).turns
        copies = [(await engine.request(copied.id, n)).proven for n in range(STEPS + 1)]
        found = await check(engine.store)
    bodies = [request.json for request in wire.requests]
    assert len(bodies) == STEPS + 1
    assert all("tools" in body for body in bodies)
    first = next(n for n, body in enumerate(bodies) if any(stubs(body)))
    gone = sum(stubs(bodies[first]))
    assert (first, stubs(bodies[first])) == (21, [True] * gone + [False] * (21 - gone))
    assert 8 <= gone <= 16
    assert [sum(stubs(body)) for body in bodies[first:]] == [gone] * (STEPS + 1 - first)
    texts = [*map(characters, bodies)]
    shares = [len(common(before, after)) / len(before) for before, after in pairwise(texts)]
    assert [n for n, share in enumerate(shares, 1) if share < 0.95] == [first]
    assert proven == copies == [True] * (STEPS + 1)
    stored = [part["output"] for part in answer.parts if "output" in part]
    assert [text.count(f"this is a line of passage {n}") for n, text in enumerate(stored)] == [130] * STEPS
    assert [part["output"][:14] == "[output pruned" for part in again.parts if "output" in part] == stubs(bodies[-1])
    assert len(answer.metadata["pruned"]) == gone
    assert found == []


@pytest.mark.slow
@pytest.mark.rule("PR-5")
async def test_what_a_prune_left_as_it_was_is_still_kept_at_the_next_one(tmp_path: Path) -> None:
    """Anthropic keeps what is marked: the fourth mark is at the end of what no later prune changes. So from the second
    prune on a provider reads the stubs there were from its cache, and not only tools and system."""
    arrived: list[Any] = []

    def answer(request: Arrived) -> Sequence[Step]:
        """Reads the next passage, or says that it is done; what was sent is counted as it is."""
        arrived.append(request.json)
        started = ANTHROPIC.start(input_tokens=len(characters(request.json)) // 4)
        if (n := len(arrived)) > 50:
            return [*ok(), started, *ANTHROPIC.text_block(0, "fine"), *ANTHROPIC.stop()]
        call = ANTHROPIC.tool_block(0, f"toolu_{n:020}", "read", json.dumps({"path": f"file{n % 7}", "limit": 120 + n}))
        return [*ok(), started, *call, *ANTHROPIC.stop("tool_use")]

    for n in range(7):
        (tmp_path / f"file{n}").write_text(passage(n) * 2)
    async with (
        WireServer(answer) as wire,
        opened(wire, "anthropic", tmp_path, window=WINDOW, max_output=4_000) as (engine, session_id),
    ):
        outcome = await (await engine.submit(session_id, "read them all")).wait()
        assert outcome.status == "completed", outcome
    cache = AnthropicCache()
    bills = [cache.ask(blocks_of(body), n * 10.0) for n, body in enumerate(arrived)]
    shown = [sum(stubs(body)) for body in arrived]
    prunes = [n for n in range(1, len(shown)) if shown[n] != shown[n - 1]]
    assert len(prunes) == 3
    read = [bills[n].read for n in prunes]
    assert read == sorted(set(read)), read
    marks = [str(body).count("cache_control") for body in arrived]
    assert (set(marks[: prunes[0] + 1]), set(marks[prunes[0] + 1 :])) == ({3}, {4})


@pytest.mark.rule("PR-2", "PR-5")
async def test_between_steps_a_prune_waits_until_it_would_be_one_for_long(wire: WireServer, tmp_path: Path) -> None:
    """Six steps are more than half of the window: they would be pruned one by one. They are summarised instead, and
    the summariser is told only the ends of each."""
    async with opened(wire, "anthropic", tmp_path, window=10_000, max_output=1_000) as (engine, session_id):
        for n in range(6):
            (tmp_path / f"file{n}").write_text(passage(n))
            reads(wire, n, 3_000 + 1_000 * n)
        wire.reply(*ok(), *ANTHROPIC.text(ENDS))
        wire.reply(*ok(), *ANTHROPIC.text("fine"))
        outcome = await (await engine.submit(session_id, "read them all")).wait()
        assert outcome.status == "completed", outcome
        proven = [(await engine.request(outcome.turn_id, n)).proven for n in range(7)]
    bodies = [request.json for request in wire.requests]
    assert ["tools" in body for body in bodies] == [True] * 6 + [False, True]
    assert [any(stubs(body)) for body in bodies[:6]] == [False] * 6
    told = bodies[6]["messages"][0]["content"][0]["text"]
    assert "the middle was pruned to save room" in told
    assert len(told) < 6 * 1_500 + 4_000
    assert proven == [True] * 7


@pytest.mark.rule("US-3")
async def test_reasoning_that_goes_back_signed_is_in_the_gauge(wire: WireServer, tmp_path: Path) -> None:
    """After a compaction all is estimated: what is then sent is no more than a tenth away from it."""
    async with opened(wire, "anthropic", tmp_path) as (engine, session_id):
        for _ in range(3):
            await (await engine.submit(session_id, "one " * 400)).wait()
        thought = ANTHROPIC.thinking_block(0, "a long thought " * 800, signature="seal" * 100)
        wire.reply(*ok(), ANTHROPIC.start(), *thought, *ANTHROPIC.text_block(1, "fine"), *ANTHROPIC.stop())
        await (await engine.submit(session_id, "think")).wait()
        wire.reply(*ok(), *ANTHROPIC.text(ENDS))
        assert (await engine.compact(session_id)).compacted
        gauge = await engine.context(session_id)
        await (await engine.submit(session_id, "go on")).wait()
    body = wire.requests[-1].json
    assert [part["type"] for message in body["messages"] for part in message["content"]].count("thinking") == 1
    sent = len(characters(body)) / 4
    assert (gauge.measured, 0.9 < gauge.used / 1.1 / sent < 1.1) == (False, True)
