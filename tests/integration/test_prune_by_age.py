"""Long work over the wire: which outputs a prune takes over all turns, and how rarely it changes what was sent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from bench.provider_cache import AnthropicCache, Bill
from bench.wire import blocks_of
from clew.session.history.check import check
from clew.store.unit import PatchSession, Unit
from tests.integration.prefixes import calls, opened
from tests.integration.wire_server import ANTHROPIC, OPENAI, Arrived, Step, WireServer, ok

WINDOW = 60_000
LINES = 7_600 // 50
"""Of one output: about 1,900 tokens."""
SUMMARY = "\n".join(f"## {name}\n- something" for name in ("Goal", "Progress", "Key Decisions", "Next Steps"))


@dataclass
class Work:
    """What one session sent: the requests of its answers, without those of its summaries, and of its steps' proofs."""

    bodies: list[Any]
    summaries: int
    proven: list[bool]
    problems: Sequence[object]

    @property
    def changes(self) -> list[int]:
        """The requests that do not begin with all messages of the one before."""
        sent = [_messages(body) for body in self.bodies]
        return [n for n, (before, after) in enumerate(pairwise(sent), 1) if after[: len(before)] != before]

    @property
    def results(self) -> list[dict[str, str]]:
        """Of each request the outputs it holds, by call, oldest first."""
        return [dict(_results(body)) for body in self.bodies]

    @property
    def billed(self) -> Bill:
        """What a provider that keeps prefixes for five minutes charges, with a step every ten seconds."""
        cache = AnthropicCache()
        return sum((cache.ask(blocks_of(body), n * 10.0) for n, body in enumerate(self.bodies)), Bill())


def _messages(body: Any) -> list[Any]:
    def unmarked(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: unmarked(one) for key, one in value.items() if key != "cache_control"}
        return [unmarked(one) for one in value] if isinstance(value, list) else value

    return [unmarked(message) for message in body["messages"]]


def _results(body: Any) -> Iterator[tuple[str, str]]:
    for message in body["messages"]:
        if message["role"] == "tool":
            yield message["tool_call_id"], str(message["content"])
        for part in message["content"] if isinstance(message["content"], list) else ():
            if part["type"] == "tool_result":
                yield part["tool_use_id"], str(part["content"])


def is_stub(text: str) -> bool:
    return "pruned to save room" in text


async def work(
    folder: Path,
    turns: Sequence[int],
    *,
    kind: str = "anthropic",
    lines: int = LINES,
    files: int = 1_000,
    own: Any = None,
    summary: str = SUMMARY,
    **figures: Any,
) -> Work:
    """A session with so many steps in each turn, of which all but the last one read a file."""
    for n in range(min(files, sum(turns))):
        (folder / f"file{n}").write_text(
            "".join(f"line {line:>4} of the passage {n:>4}".ljust(42, ".") + "\n" for line in range(lines))
        )
    bodies: list[Any] = []
    told = [n == steps - 1 for steps in turns for n in range(steps)]
    summaries = 0

    def answer(request: Arrived) -> Sequence[Step]:
        nonlocal summaries
        body = request.json
        used = len(json.dumps([_messages(body), body.get("system"), body.get("tools")])) // 4
        if "tools" not in body:
            summaries += 1
            return [*ok(), *(ANTHROPIC.text(summary) if kind == "anthropic" else OPENAI.text(summary))]
        n = len(bodies)
        bodies.append(body)
        if told[n]:
            if kind == "openai":
                return [*ok(), *OPENAI.text("fine")]
            return [*ok(), ANTHROPIC.start(input_tokens=used), *ANTHROPIC.text_block(0, "fine"), *ANTHROPIC.stop()]
        said = calls(kind, n, "read", path=f"file{n % files}")
        return [*ok(), *([ANTHROPIC.start(input_tokens=used), *said[1:]] if kind == "anthropic" else said)]

    async with (
        WireServer(answer) as wire,
        opened(wire, kind, folder, **{"window": WINDOW, **figures}) as (engine, session_id),
    ):
        if own is not None:
            await engine.host.store.commit(Unit(session_id, (PatchSession(metadata={"compaction": own}),)))
        proven = []
        ended = []
        for n, _ in enumerate(turns):
            outcome = await (await engine.submit(session_id, f"part {n} of the work")).wait()
            assert outcome.status == "completed", outcome
            ended.append(outcome.turn_id)
        for turn_id, steps in zip(ended, turns, strict=True):
            proven += [(await engine.request(turn_id, n)).proven for n in range(steps)]
        problems = await check(engine.store)
    return Work(bodies, summaries, proven, problems)


def gone_and_staying(done: Work, n: int) -> tuple[list[int], list[int]]:
    """Of the outputs of the request before, by age: those that request ``n`` has as stubs, and those still whole."""
    before, after = done.results[n - 1], done.results[n]
    whole = [call for call, text in before.items() if not is_stub(text)]
    gone = [place for place, call in enumerate(whole) if call in after and is_stub(after[call])]
    return gone, [place for place, call in enumerate(whole) if call in after and not is_stub(after[call])]


def check_changes(done: Work, usable: int) -> None:
    """Few changes; at each, all outputs that go are older than all that stay, and a fifth of the usable is freed."""
    assert all(later - earlier >= 10 for earlier, later in pairwise(done.changes)), done.changes
    for n in done.changes:
        gone, staying = gone_and_staying(done, n)
        if not gone:
            continue
        assert max(gone) < min(staying)
        assert len(staying) >= 3
        before, after = done.results[n - 1], done.results[n]
        freed = sum(len(text) - len(after.get(call, "")) for call, text in before.items())
        assert freed // 4 >= usable // 5
        kept = [len(text) for text in after.values() if not is_stub(text)]
        # The next older one would be more than a quarter.
        assert sum(kept) // 4 <= usable // 4 + 2 * max(kept) // 4
    assert done.proven == [True] * len(done.bodies)
    assert done.problems == []


@pytest.mark.rule("CP-16", "PR-5")
@pytest.mark.parametrize(
    "turns", [(25,) * 4, (10, 10, 10, 10, 60), (10,) * 10], ids=["4 x 25", "4 x 10 and 60", "10 x 10"]
)
async def test_of_a_hundred_steps_at_most_one_in_ten_changes_what_was_sent(
    tmp_path: Path, turns: Sequence[int]
) -> None:
    """Outputs of 1,900 tokens in a window of 60,000. No summary is needed."""
    done = await work(tmp_path, turns)
    assert (len(done.bodies), done.summaries) == (100, 0)
    assert 5 <= len(done.changes) <= 9
    check_changes(done, WINDOW - 4_096)


@pytest.mark.slow
@pytest.mark.rule("CP-16", "PR-5")
@pytest.mark.parametrize(
    ("preset", "summary"),
    [("guide", "no summary"), ("overlay", SUMMARY), ("turn", "no summary")],
    ids=["guide, no summary", "overlay", "turn, no summary"],
)
async def test_a_large_reserve_and_other_presets_change_as_seldom(tmp_path: Path, preset: str, summary: str) -> None:
    """Also where no summary is to be had: before, nearly every step of a turn changed what was sent."""
    done = await work(tmp_path, (25,) * 4, summary=summary, max_output=20_000, own={"preset": preset})
    assert len(done.changes) <= 9
    check_changes(done, WINDOW - 20_000)


@pytest.mark.rule("CP-16", "CP-9", "PR-3")
async def test_checkpoint_keeps_the_last_three_steps_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is what its source calls assistant messages. Outputs of 55,000 characters in a window of 90,000 tokens; the
    newest of five files would keep them too."""
    monkeypatch.setattr("clew.compaction.prune.PROTECTED_FILES", 0)
    own = {"preset": "checkpoint"}
    done = await work(tmp_path, (9, 9), lines=1_200, window=90_000, own=own)
    assert done.changes != []
    for n, results in enumerate(done.results):
        # The last step of the first turn has no output.
        read = sum(step != 8 for step in range(max(n - 3, 0), n))
        newest = [not is_stub(text) for text in [*results.values()][len(results) - read :]]
        assert newest == [True] * read, n
    for n in done.changes:
        gone, staying = gone_and_staying(done, n)
        assert max(gone) < min(staying)
    assert done.proven == [True] * 18
