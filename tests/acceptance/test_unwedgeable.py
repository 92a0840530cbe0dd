"""A campaign: a session that cannot be wedged, whatever its messages, tools, models and summariser do.

Hundreds of turns of random sizes on models with small windows, some of them long ones with many large outputs, under
every preset, with a summariser that fails in every way it can, and with providers that refuse what should fit. After
each turn the session takes the next prompt, or refuses it with a code and a way out, which is then taken. What happens
is drawn from a seed; ``CLEW_SEED`` chooses another.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any, Final

import pytest

import clew
from clew.clock import SystemClock
from clew.errors import CompactionError, MessageTooLarge
from clew.providers.base import ModelInfo, ModelRequest, ProviderFailure, StepEnd
from clew.providers.demo.provider import DEMO_MODELS, DemoProvider
from clew.providers.demo.reading import newest_words, sent_tokens
from clew.session.api import Engine
from clew.session.history.check import check
from clew.session.prompt.submission import Submission, TurnOutcome
from clew.store.unit import PatchSession, Unit
from clew.testing.scripted import FakeProviders
from clew.transcript import chunk as c
from clew.transcript.chunk import Chunk
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.usage import Usage

from .compacting import summary

WINDOWS: Final = {"small": 2_000, "echo": 8_000, "tiny": 1_000, "grab": 6_000, "haul": 12_000, "long": 200_000}
PRESETS: Final = ("guide", "checkpoint", "overlay", "turn")
AILMENTS: Final = ("transient", "overflow", "auth", "empty", "malformed", "too long", "hanging")
_FASTER: Final = 1_000


class HurriedClock(SystemClock):
    """A clock by which a minute passes in the twinkling of an eye, so that waiting can be tested by waiting.

    On a ``calm`` day nobody hangs, and nobody is given up: a machine that is busy elsewhere may not wink for as long.
    """

    def __init__(self, is_calm: Callable[[], bool]) -> None:
        self._is_calm = is_calm
        self._now = self._seen = super().monotonic_ms()

    def monotonic_ms(self) -> float:
        seen = super().monotonic_ms()
        self._now += (seen - self._seen) * (1 if self._is_calm() else _FASTER)
        self._seen = seen
        return self._now

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Any:
        return super().call_later(delay_ms if self._is_calm() else delay_ms / _FASTER, callback)

    async def sleep(self, delay_ms: float) -> None:
        await super().sleep(delay_ms / _FASTER)


class Wild:
    """The demo provider on bad days. ``calm``: a good day."""

    def __init__(self, rng: random.Random) -> None:
        self._demo = DemoProvider()
        self._rng = rng
        self._called: Counter[str] = Counter()
        self.ailments: Counter[str] = Counter()
        self.calm = False
        self.preset = "guide"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk | StepEnd, None]:
        name = request.model.model_id
        if name == "summary":
            played = self._summarise(request)
        elif not self.calm and self._rng.random() < 0.03:
            self.ailments["refused what fits"] += 1
            raise ProviderFailure("prompt is too long", kind="overflow", status=400)
        elif name in ("tiny", "grab", "haul"):
            played = self._own(request, WINDOWS[name])
        else:
            played = self._demo.stream(request)
        try:
            async for item in played:
                yield item
        finally:
            await played.aclose()

    async def close(self) -> None:
        await self._demo.close()

    async def _own(self, request: ModelRequest, window: int) -> AsyncGenerator[Chunk | StepEnd, None]:
        """An echo with a window of its own; ``grab`` first calls its tool, three times at most for one message, and
        ``haul`` up to thirty times, with a word now and then."""
        sent, words = sent_tokens(request), newest_words(request.messages)
        if sent > window:
            raise ProviderFailure(f"{sent} tokens > {window} maximum", kind="overflow", status=400)
        calls = {"grab": len(words) % 4, "haul": 5 + len(words) % 26}.get(request.model.model_id, 0)
        if self.calm and self.preset == "turn":
            # No turn is cut there, so that outputs larger than the window fail the turn that called for them.
            calls = 0
        if self._called[words] < calls:
            self._called[words] += 1
            if self._rng.random() < 0.3:
                yield c.TextStart("t")
                yield c.TextDelta("t", f"so far {self._called[words]} " * self._rng.choice((1, 20, 200)))
                yield c.TextEnd("t")
            yield c.ToolInputAvailable(f"call{sum(self._called.values())}", "grab", {"size": self._rng.choice(_SIZES)})
            yield StepEnd(usage=Usage(sent, 5), finish_reason="tool-calls")
            return
        yield c.TextStart("t")
        yield c.TextDelta("t", words)
        yield c.TextEnd("t")
        yield StepEnd(usage=Usage(sent, len(words) // 4))

    async def _summarise(self, request: ModelRequest) -> AsyncGenerator[Chunk | StepEnd, None]:
        ailment = "none" if self.calm or self._rng.random() < 0.4 else self._rng.choice((*AILMENTS, "overflow"))
        self.ailments[f"summariser {ailment}"] += 1
        match ailment:
            case "transient":
                raise ProviderFailure("busy", kind="transient", status=503)
            case "overflow":
                raise ProviderFailure("prompt is too long", kind="overflow", status=400)
            case "auth":
                raise ProviderFailure("no key", kind="auth", status=401)
            case "hanging":
                await asyncio.Event().wait()
            case "none":
                async for item in self._demo.stream(request):
                    yield item
                return
        text = {"empty": "", "malformed": "Sure, here it is."}.get(ailment) or summary("x", *["on and on"] * 2_000)
        yield c.TextStart("t")
        yield c.TextDelta("t", text)
        yield c.TextEnd("t")
        yield StepEnd(usage=Usage(sent_tokens(request), 10))


_SIZES: Final = (50, 2_000, 8_000, 29_000, 120_000)


@clew.tool
async def grab(size: int) -> str:
    """Brings back so many characters."""
    return "plunder " * (size // 8)


class Campaign:
    """One session, everything that was said in it, and what became of it."""

    def __init__(self, engine: Engine, wild: Wild, rng: random.Random) -> None:
        self.engine = engine
        self.wild = wild
        self.rng = rng
        self.session_id = ""
        self.said: list[str] = []
        self.ends: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.presets: Counter[str] = Counter()

    async def begin(self) -> None:
        session = await self.engine.create_session(model="demo/small", title="campaign")
        self.session_id = session.id
        await self.allow(session.id)

    async def allow(self, session_id: str) -> None:
        """Let it use its tool; a branch has to be told again."""
        rules = ({"permission": "grab", "pattern": "*", "action": "allow"},)
        await self.engine.store.commit(Unit(session_id, (PatchSession(permissions=rules),)))

    def words(self, turn: int, chars: int) -> str:
        """Something to say, like nothing that was said before."""
        text = f"{turn}: " + " ".join(self.rng.choice(_WORDS) for _ in range(chars // 6 + 1))
        return text[: max(chars, 12)].rstrip()

    async def submit(self, text: str, model: str) -> TurnOutcome:
        submission = await self.engine.submit(self.session_id, text, model=model)
        self.said.append(text)
        return await self.ended(self.session_id, submission)

    async def ended(self, session_id: str, submission: Submission) -> TurnOutcome:
        """How it ended, once what comes after a turn is over too: one preset has the session summarised then."""
        async with asyncio.timeout(60):
            outcome = await submission.wait()
            while True:
                async with self.engine._runtime.sessions.lock(session_id):
                    if self.engine.is_idle(session_id):
                        return outcome
                await asyncio.sleep(0)

    async def turn(self, number: int) -> None:
        """One prompt, and the way out if it was not answered."""
        if number % 10 == 9:
            await self.change_settings()
        name = self.rng.choices(("small", "echo", "tiny", "grab", "haul"), (50, 15, 12, 15, 8))[0]
        tokens = self.rng.choice((5, 20, 60, 150, 400, 900, 1_500, 2_500, 9_000))
        text, model = self.words(number, tokens * 4), f"demo/{name}"
        try:
            outcome = await self.submit(text, model)
        except MessageTooLarge as error:
            self.refusals[error.code] += 1
            outcome = await self.submit(text[:80], model)
        self.ends[outcome.status] += 1
        if outcome.status in ("failed", "refused"):
            code = (outcome.error or {})["code"]
            self.presets[f"{self.wild.preset} {outcome.status} on {name}"] += 1
            self.refusals[code] += 1
            assert code in ("context_too_large", "model_failed"), outcome
            if outcome.status == "refused":
                assert (outcome.error or {})["text"] == self.said[-1]
            await self.way_out(number, model, outcome)
        elif self.rng.random() < 0.04:
            await self.tidy()
        elif self.rng.random() < 0.06:
            await self.go_back()

    async def go_back(self) -> None:
        """To an earlier message, perhaps past a compaction: sent again, taken back, or undone at once."""
        line = (await self.engine.store.load_line(self.session_id)).turns
        rows = [row for entry in line for row in entry.messages if row.role == "user"]
        target = self.rng.choice([row for row in rows[-12:] if not row.metadata.get("synthetic")])
        mode: Any = self.rng.choice(("resend", "edit"))
        await self.engine.rewind(self.session_id, target.id, mode=mode)
        self.ways[f"back by {mode}"] += 1
        match self.rng.randrange(3):
            case 0:
                await self.engine.unrewind(self.session_id)
            case 1 if mode == "resend":
                submission = await self.engine.continue_turn(self.session_id)
                ended = await self.ended(self.session_id, submission)
                self.ways[f"sent again, {ended.status}"] += 1

    async def change_settings(self) -> None:
        """Another preset, with a tail that such windows hold; steps of the ladder are switched off and on again."""
        steps = {name: self.rng.random() < 0.7 for name in ("prune_tool_outputs", "chunked_summarize", "drop_middle")}
        preset = self.rng.choice(PRESETS)
        changed = {
            "smart_recovery": steps,
            "preset": preset,
            "keep_recent_tokens": self.rng.choice((200, 2_000, 20_000)),
        }
        await self.engine.patch_session(self.session_id, metadata={"compaction": changed})
        self.wild.preset = preset
        self.presets[preset] += 1

    async def tidy(self) -> None:
        """Room made by hand, with a summariser that may fail."""
        try:
            done = await (self.engine.prune if self.rng.random() < 0.5 else self.engine.compact)(self.session_id)
            self.ways[f"by hand {done.strategy or 'nothing to do'}"] += 1
        except CompactionError:
            self.ways["by hand failed"] += 1

    async def way_out(self, number: int, model: str, outcome: TurnOutcome) -> None:
        """One of the ways the refusal names; on a good day it leads out."""
        self.wild.calm = True
        branch = (outcome.error or {}).get("branch")
        way = "branch" if branch and self.rng.random() < 0.8 else self.rng.choice(("shorter", "larger", "by hand"))
        self.ways[way] += 1
        text = self.said[-1] if way == "larger" else f"{number}: go on"
        if way == "branch" and branch is not None:
            child = await self.engine.branch(self.session_id, **branch)
            await self.allow(child.id)
            submission = await self.engine.submit(child.id, f"{number}: over here")
            ended = await self.ended(child.id, submission)
        else:
            if way == "by hand":
                await self.engine.compact(self.session_id)
            ended = await self.submit(text, "demo/long" if way == "larger" else model)
            if way == "shorter" and ended.status == "refused":
                # What a summary and its tail leave may be little in so small a window: a larger one is named as well.
                self.ways["shorter refused, larger"] += 1
                ended = await self.submit(f"{number}: go on there", "demo/long")
        assert ended.status == "completed", (way, model, self.wild.preset, outcome, ended)
        self.wild.calm = False

    async def judge(self) -> None:
        assert await check(self.engine.store) == []
        stored = [_text(message) for message in await self.engine.messages(self.session_id, view="all")]
        assert [text for text in self.said if text not in set(stored)] == []

    async def prove(self, most: int = 60) -> None:
        """Every request of these turns, put together again, is what was sent; the turns of branches among them."""
        turns = [
            turn
            for session_id in await self.engine.store.session_ids()
            for turn in (await self.engine.store.load_tree(session_id)).turns.values()
            if turn.kind == "normal"
        ]
        for turn in random.Random(1).sample(turns, min(most, len(turns))):
            for step in await self.engine.store.load_steps(turn.id):
                report = await self.engine.request(turn.id, step.index)
                assert report.proven, (turn, step)

    async def account(self) -> None:
        """Each part of the conversation is in the range of one summary, or is sent: never both, never neither."""
        line = (await self.engine.store.load_line(self.session_id)).turns
        told: Counter[str] = Counter()
        for entry in line:
            if entry.turn.kind == "compaction":
                report = await self.engine.compaction(self.session_id, entry.messages[0].id)
                told.update({message.id: len(message.parts) for message in report.messages})
        sent = await self.engine.messages(self.session_id, view="model")
        rows = [row for entry in line if entry.turn.kind == "normal" for row in entry.messages]
        # A preset may send the time with a prompt, in a part of its own that is not stored.
        typed = {row.id: [part.data for part in row.parts] for row in rows if row.role == "user"}
        for message in sent:
            if not message.metadata.get("summary"):
                told[message.id] += sum(part in typed.get(message.id, [part]) for part in message.parts)
        assert told == Counter({row.id: len(row.parts) for row in rows if row.parts})

    async def strategies(self) -> Counter[str]:
        tree = await self.engine.store.load_tree(self.session_id)
        return Counter(turn.data["strategy"] for turn in tree.turns.values() if turn.kind == "compaction")


_WORDS: Final = ("ariadne", "thread", "minotaur", "maze", "lamp", "stone", "north", "quiet", "never", "always", "must")


def _text(message: Message) -> str:
    return "".join(str(part.get("text", "")) for part in message.parts)


def _infos() -> list[ModelInfo]:
    own = {
        name: ModelInfo(
            model=Model("demo", name),
            window=WINDOWS[name],
            max_output=400,
            tools=name in ("grab", "haul"),
            summariser=Model("demo", "summary"),
        )
        for name in ("tiny", "grab", "haul")
    }
    return [*DEMO_MODELS.values(), *own.values()]


@pytest.mark.slow
@pytest.mark.rule("CP-1", "CP-3", "CP-5", "CP-8", "MS-2", "RN-4")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("store", "turns"), [("memory:", 350), ("sqlite", 60)])
async def test_a_session_cannot_be_wedged(
    tmp_path: Path, store: str, turns: int, record_property: Callable[[str, object], None]
) -> None:
    """Every prompt is answered, or refused with a code and a way out that works; nothing that was said is lost."""
    # Two sources of chance: how the provider fares must not change what is said.
    seed = int(os.environ.get("CLEW_SEED", "2611"))
    rng, wild = random.Random(seed), Wild(random.Random(seed + 1))
    url = f"sqlite:///{tmp_path}/store.db" if store == "sqlite" else store
    providers, clock = FakeProviders({"demo": wild}, infos=_infos()), HurriedClock(lambda: wild.calm)
    async with clew.open(url, config=clew.Config(), providers=providers, tools=[grab], clock=clock) as engine:
        campaign = Campaign(engine, wild, rng)
        await campaign.begin()
        for number in range(turns):
            await campaign.turn(number)
            if number % 50 == 49:
                await campaign.judge()
        await campaign.judge()
        await campaign.prove()
        await campaign.account()
        strategies = await campaign.strategies()
        record_property(
            "figure",
            f"not wedged: {turns} turns ({_told(campaign.ends)}), compactions {_told(strategies)}, "
            f"refusals {_told(campaign.refusals)}, presets {_told(campaign.presets)}, "
            f"ways out {_told(campaign.ways)}, {_told(wild.ailments)}",
        )
        assert campaign.refusals["message_too_large"] > 0
        assert campaign.ends["completed"] > turns * 0.7
        if turns >= 500:
            assert {"summary", "chunked", "drop_middle"} <= set(strategies)
            assert {f"summariser {ailment}" for ailment in AILMENTS} < set(wild.ailments)
            assert campaign.refusals["context_too_large"] > 0
            assert {"shorter", "larger", "by hand", "branch"} <= set(campaign.ways)


def _told(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items())) or "none"
