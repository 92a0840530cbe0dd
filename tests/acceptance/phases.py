"""A session over a scripted wire that is hit in any phase, gone on with in any way, and judged after each.

The wire is the witness: it knows what it was asked, what it had said of the usage of each call, and which calls of
tools it asked for. A kill is the store as it is on disk at that moment, opened by somebody else.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import msgspec

import clew
from clew.errors import ClewError
from clew.providers.catalog import ModelFacts
from clew.providers.registry import ProviderConfig, ProviderRegistry
from clew.session.history.check import check
from clew.testing.scripted import Gate
from clew.transcript.model_call import ModelCall
from clew.transcript.spend import GROUPINGS
from clew.transcript.usage import Usage
from tests.acceptance.compacting import bulk, summary
from tests.integration.wire_cases import Break, Heard, Wire, broken, hear
from tests.integration.wire_server import ANTHROPIC, OPENAI, RESPONSES, Arrived, Pause, Step, WireServer, ok
from tests.integration.wired import PRICES

__all__ = ["DEATHS", "HITS", "NEXTS", "PHASES", "Hit", "Next", "Phase", "World"]

Phase: TypeAlias = Literal[
    "before the first chunk",
    "in reasoning",
    "in text",
    "in arguments",
    "in a tool",
    "between tools",
    "in a subagent",
    "in a summary",
    "while it waits",
]
PHASES: Final[tuple[Phase, ...]] = Phase.__args__  # type: ignore[attr-defined]
Hit: TypeAlias = Literal["abort", "kill", "death", "nothing"]
HITS: Final[tuple[Hit, ...]] = Hit.__args__  # type: ignore[attr-defined]
Next: TypeAlias = Literal["prompt", "continue", "queue", "interrupt", "allow", "deny", "restart"]
NEXTS: Final[tuple[Next, ...]] = Next.__args__  # type: ignore[attr-defined]


DEATHS: Final[tuple[Break, ...]] = ("ends", "is overloaded", "talks garbage")


class Reply(msgspec.Struct):
    """An answer to a request: what has been sent of it, what it holds before the rest, and how it then goes on."""

    steps: list[Step]
    sent: list[bytes]
    rest: list[bytes]
    gate: asyncio.Event | None = None


class World:
    """One store, one wire, one session; an engine that is opened again after each kill."""

    def __init__(self, folder: Path, wire: Wire) -> None:
        self.folder = folder
        self.kind = wire
        self.server = WireServer(self._answer)
        self.replies: list[Reply] = []
        self.ran: Counter[int] = Counter()
        self.killed = False
        self.session_id = ""
        self.engine: clew.Engine
        self._coming: deque[Callable[[], Reply]] = deque()
        self._number = 0
        self._gates: list[asyncio.Event] = []
        self._tool_gate = Gate()
        self._opened: Any = None
        self._work: list[asyncio.Task[Any]] = []
        self._lives = 0

    # The world

    async def __aenter__(self) -> World:
        await self.server.__aenter__()
        url = self.server.url if self.kind == "anthropic" else f"{self.server.url}/v1"
        facts = {"m": ModelFacts(window=200_000, max_output=8_000, prices=PRICES)}
        config = ProviderConfig(kind=self.kind, base_url=url, api_key="k", models=facts)
        self._providers = _Kept({"wired": config}, default_model="wired/m", environ={})
        await self._open()
        self.session_id = (await self.engine.create_session(title="phases")).id
        rules = [{"permission": name, "pattern": "*", "action": "allow"} for name in ("note", "slow", "task")]
        await self.engine.set_permissions(self.session_id, rules)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()
        await self._providers.let_go()
        await self.server.__aexit__()

    async def _open(self) -> None:
        @clew.tool
        async def note(n: int) -> str:
            """Note a number."""
            self.ran[n] += 1
            return f"noted {n}"

        @clew.tool
        async def slow(n: int) -> str:
            """Note a number, slowly."""
            self.ran[n] += 1
            await self._tool_gate.wait()
            return f"noted {n}"

        @clew.tool
        async def risky(n: int) -> str:
            """Note a number, if one may."""
            self.ran[n] += 1
            return f"noted {n}"

        url = f"sqlite:///{self.folder}/{self._lives}/store.db"
        (self.folder / str(self._lives)).mkdir(exist_ok=True)
        tools = [note, slow, risky]
        self._opened = clew.open(url, config=clew.Config(), providers=self._providers, tools=tools)
        self.engine = await self._opened.__aenter__()

    async def _close(self) -> None:
        for gate in self._gates:
            gate.set()
        self._tool_gate.set()
        for task in self._work:
            task.cancel()
        await asyncio.gather(*self._work, return_exceptions=True)
        self._work.clear()
        with contextlib.suppress(ClewError):
            await self._opened.__aexit__(None, None, None)

    # The model

    def _answer(self, _: Arrived) -> Sequence[Step]:
        reply = self._coming.popleft()() if self._coming else self._say("fine")
        self.replies.append(reply)
        return reply.steps

    def _whole(self, events: list[bytes]) -> Reply:
        return Reply([*ok(), *events], events, [])

    def _say(self, text: str) -> Reply:
        wires = {"anthropic": ANTHROPIC, "openai": OPENAI, "openai-responses": RESPONSES}
        return self._whole(wires[self.kind].text(text))  # type: ignore[attr-defined]

    def _call(self, *tools: str) -> Reply:
        """Calls of these tools, each with a number of its own."""
        return self._whole(self._rich(*((name, {"n": self._next()}) for name in tools)))

    def _rich(self, *calls: tuple[str, dict[str, Any]]) -> list[bytes]:
        """A thought, words and calls."""
        made = [(f"call_{self._next():016}", name, msgspec.json.encode(given).decode()) for name, given in calls]
        match self.kind:
            case "anthropic":
                blocks = [ANTHROPIC.thinking_block(0, "Let me ", "think."), ANTHROPIC.text_block(1, "One ", "two.")]
                blocks += [ANTHROPIC.tool_block(2 + n, *call) for n, call in enumerate(made)]
                return [
                    ANTHROPIC.start(input_tokens=60, output_tokens=3, cache_read_input_tokens=40),
                    *(event for block in blocks for event in block),
                    *ANTHROPIC.stop("tool_use" if made else "end_turn", output_tokens=30),
                ]
            case "openai":
                return [
                    OPENAI.chunk({"reasoning_content": "Let me "}),
                    OPENAI.chunk({"content": "One "}),
                    OPENAI.chunk({"content": "two."}),
                    *(OPENAI.call(n, *call) for n, call in enumerate(made)),
                    OPENAI.chunk({}, "tool_calls" if made else "stop"),
                    OPENAI.usage(100, 30, cached=40, reasoning=12),
                    OPENAI.done,
                ]
            case "openai-responses":
                items = [RESPONSES.reasoning(0, "Let me ", "think."), RESPONSES.message(1, "One ", "two.")]
                items += [RESPONSES.call(2 + n, *call) for n, call in enumerate(made)]
                end = RESPONSES.end(input=100, output=30, cached=40, reasoning=12)
                return [*RESPONSES.created(), *(event for item in items for event in item), end]

    def _held(self, events: list[bytes], at: Callable[[Heard], object]) -> Reply:
        """The events up to the first of which this is true, then a pause."""
        count = next(n for n in range(len(events) + 1) if at(hear(self.kind, events[:n])))
        gate = asyncio.Event()
        self._gates.append(gate)
        return Reply([*ok(), *events[:count], Pause(gate)], events[:count], events[count:], gate)

    def _next(self) -> int:
        self._number += 1
        return self._number

    async def live_through(self, phase: Phase, hit: Hit, how: Break, nexts: Sequence[Next]) -> None:
        """Be hit in a phase, go on, and be judged after each."""
        await self.reach(phase)
        await self.hit(hit, how)
        await self.judge()
        for one in nexts:
            await self.go_on(one)
            await self.judge()

    # Into a phase

    async def reach(self, phase: Phase) -> None:
        """Have the session at work, or waiting, and in this phase."""
        # What waits for a human holds up what comes after it.
        await self.go_on("deny")
        self._tool_gate = Gate()
        self.server.pausing.clear()
        rich = self._rich(("note", {"n": self._next()}))
        held: dict[str, Callable[[Heard], object]] = {
            # Anthropic has counted the input by then.
            "before the first chunk": lambda heard: heard.said or self.kind != "anthropic",
            "in reasoning": lambda heard: heard.reasoning,
            "in text": lambda heard: heard.text,
            "in arguments": lambda heard: heard.arguments,
        }
        errand = {"prompt": "an errand"}
        match phase:
            case "in a tool":
                self._coming.append(lambda: self._call("note", "slow"))
            case "between tools":
                self._coming.extend(
                    [lambda: self._call("note"), lambda: self._held(rich, held["before the first chunk"])]
                )
            case "in a subagent":
                self._coming.extend(
                    [lambda: self._whole(self._rich(("task", errand))), lambda: self._held(rich, held["in text"])]
                )
            case "in a summary":
                await self._summarise()
                return
            case "while it waits":
                self._coming.append(lambda: self._call("risky"))
            case _:
                self._coming.append(lambda: self._held(rich, held[phase]))
        await self.engine.submit(self.session_id, f"do {phase}")
        if phase == "while it waits":
            await self._until(self._is_idle)
        elif phase == "in a tool":
            await self._tool_gate.reached.wait()
        else:
            await self.server.pausing.wait()
            await self._heard()

    async def _summarise(self) -> None:
        for word in ("one", "two", "three"):
            self._coming.append(lambda: self._say("ok"))
            await (await self.engine.submit(self.session_id, bulk(word))).wait()
        text = summary("count")
        wires = {"anthropic": ANTHROPIC, "openai": OPENAI, "openai-responses": RESPONSES}
        events: list[bytes] = wires[self.kind].text(text[:100], text[100:])  # type: ignore[attr-defined]
        self._coming.append(lambda: self._held(events, lambda heard: heard.text))
        self._work.append(asyncio.create_task(self.engine.compact(self.session_id)))
        await self.server.pausing.wait()
        await self._heard()

    async def _heard(self) -> None:
        """Let what was sent be read."""
        for _ in range(3):
            await asyncio.sleep(0.002)

    async def _is_idle(self) -> bool:
        """Nothing runs, and nothing of the queue is about to."""
        status, queue = await self.engine.get_status(self.session_id), await self.engine.queue(self.session_id)
        return self.engine.is_idle(self.session_id) and (status.paused or not queue)

    async def _is_closed(self) -> bool:
        return not await self.engine.store.open_model_calls()

    async def _until(self, true: Callable[[], Awaitable[bool]]) -> None:
        while not await true():  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    # The hit, and on

    async def hit(self, hit: Hit, how: Break) -> None:
        self.server.pausing.clear()
        match hit:
            case "abort":
                for reply in self._holding():
                    reply.rest = []
                with contextlib.suppress(ClewError):
                    await self.engine.abort(self.session_id)
                # Before anything is let go: what is not waited for must not go on.
                await self._until(self._is_idle)
            case "kill":
                await self.kill()
            case "death":
                for reply in self._holding():
                    reply.steps += broken(self.kind, [], how)[len(ok()) :]
                    reply.rest = []
            case "nothing":
                pass
        await self.settle()

    async def kill(self) -> None:
        """What is on disk now is all there is; nobody ends anything in good order."""
        self.killed = True
        old = self.folder / str(self._lives)
        self._lives += 1
        shutil.copytree(old, self.folder / str(self._lives))
        for reply in self._holding():
            reply.rest = []
        await self._close()
        await self._open()

    def _holding(self) -> list[Reply]:
        return [reply for reply in self.replies if reply.gate is not None and not reply.gate.is_set()]

    async def settle(self) -> None:
        """Let everything that can end, end."""
        for reply in self._holding():
            reply.steps += reply.rest
            reply.sent = [*reply.sent, *reply.rest]
            reply.rest = []
            assert reply.gate is not None
            reply.gate.set()
        self._tool_gate.set()
        await asyncio.gather(*self._work, return_exceptions=True)
        self._work.clear()
        await self._until(self._is_idle)

    async def go_on(self, next: Next) -> None:
        """Go on as a user would. A refusal is an answer; what matters is what it leaves."""
        with contextlib.suppress(ClewError):
            match next:
                case "prompt" | "queue":
                    await self.engine.submit(self.session_id, "next", on_busy="queue")
                case "interrupt":
                    await self.engine.submit(self.session_id, "now", on_busy="interrupt")
                case "continue":
                    await self.engine.continue_turn(self.session_id)
                case "restart":
                    await self.kill()
                case "allow" | "deny":
                    for waiting in (await self.engine.get_status(self.session_id)).waiting:
                        await self.engine.answer(
                            self.session_id, str(waiting.approval_id), "once" if next == "allow" else "deny"
                        )
        await self.settle()

    # The judge

    async def judge(self) -> None:
        assert self.server.refused == []
        assert [n for n, times in self.ran.items() if times > 1] == [], "a tool ran twice for one call"
        # Nobody waits for the end of a summary's row to be written.
        await self._until(self._is_closed)
        assert await check(self.engine.store) == []
        sessions = [(await self.engine.get_session(self.session_id))]
        sessions += (await self.engine.list_sessions(kind="subagent")).sessions
        rows: list[ModelCall] = []
        for session in sessions:
            calls = await self.engine.store.load_calls(session.id)
            rows += calls
            answers = [call for call in calls if call.purpose == "answer"]
            assert session.usage == sum((call.usage for call in answers), Usage())
            assert abs(session.cost_usd - sum(call.cost_usd for call in answers)) < 1e-9
        reports = [await self.engine.usage(by) for by in GROUPINGS]
        counts = sum((row.usage for row in rows), Usage())
        for report in reports:
            told = msgspec.convert(report.total, Usage, from_attributes=True)
            assert (report.total, told) == (reports[0].total, counts), rows
        rows.sort(key=lambda call: call.id)
        # A call that was stopped on its way to the wire has a row, and the wire never heard of it.
        unheard = sum(row.first_chunk_at is None and row.ended in ("aborted", "interrupted") for row in rows)
        assert 0 <= len(rows) - len(self.replies) <= unheard, (rows, [hear(self.kind, r.sent) for r in self.replies])
        if len(rows) > len(self.replies):
            return
        for row, reply in zip(rows, self.replies, strict=True):
            self._judge_call(row, hear(self.kind, reply.sent))

    def _judge_call(self, row: ModelCall, heard: Heard) -> None:
        said = heard.said or Usage()
        assert row.cost_usd == PRICES.cost(row.usage)
        if row.ended == "completed":
            assert (row.usage, row.estimated) == (said, False) or heard.said is None, row
        elif row.ended == "failed":
            assert (row.usage, heard.anything) == (Usage(), False), row
        else:
            assert row.estimated, row
            assert row.usage.total > 0, row
            # Whoever is killed may not have read all that was sent; else nothing that was said is lost.
            if row.ended != "interrupted" and heard.said is not None:
                least = msgspec.structs.astuple(said)
                assert all(a >= b for a, b in zip(msgspec.structs.astuple(row.usage), least, strict=True)), (row, said)


class _Kept(ProviderRegistry):
    """Providers that outlive an engine: what they cost to make is not what this is about."""

    async def close(self) -> None:
        pass

    async def let_go(self) -> None:
        await super().close()
