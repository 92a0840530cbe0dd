"""CONTEXT: what a long piece of agentic work costs in input tokens, when providers keep the prefix of what they read.

The work goes through the whole engine with its own tools; only the model is scripted. Each request is encoded as it
goes over the wires of Anthropic and OpenAI and billed by their rules, and what Anthropic would bill is told to the
engine.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import clew
from bench import errand
from bench.measure import Bench, median
from bench.provider_cache import AnthropicCache, Bill, Block, OpenAICache, tokens_of
from bench.table import aligned
from bench.talk import text
from bench.wire import Wire, open_wire
from clew.config import CompactionConfig, Config, PruningConfig
from clew.providers.base import EndpointKind, ModelInfo, ModelRequest, StepEnd
from clew.testing.chunks import text as said
from clew.testing.chunks import tool_call
from clew.testing.scripted import FakeProviders
from clew.transcript import chunk as c
from clew.transcript.session import Model
from clew.transcript.usage import Usage

__all__ = ["Row", "Wired", "measure", "table"]

_ANSWERS, _SUMMARISES = Model("bench", "answers"), Model("bench", "summarises")
_MODELS: Final[Mapping[EndpointKind, Mapping[str, str]]] = {
    "anthropic": {"answers": "claude-sonnet-4-5", "summarises": "claude-haiku-4-5"},
    "openai": {"answers": "gpt-5.1", "summarises": "gpt-5-mini"},
}
_STEP_S: Final = 15
"""How long a model call takes together with the tool it asks for."""
_ENDLESS: Final = 100_000_000
_OFF: Final = PruningConfig(enabled=False)
_POLICIES: Final[Mapping[str, Config]] = {
    "no compaction": Config(compaction=CompactionConfig(enabled=False), pruning=_OFF),
    "summary only": Config(pruning=_OFF),
    "clew": Config(),
}
_SUMMARY: Final = "\n".join(
    line
    for n, heading in enumerate(("Goal", "Constraints & Preferences", "Progress", "Key Decisions", "Next Steps"))
    for line in (f"## {heading}", *(f"- {text(n * 10 + line, 150)}" for line in range(7)))
)
"""About 1,400 tokens, whatever it is the summary of."""


@dataclass(slots=True)
class Wired:
    """A provider's side of one wire: its caches, one for each model, and what it has billed for each."""

    wire: Wire
    caches: Mapping[str, AnthropicCache | OpenAICache]
    bills: dict[str, Bill] = field(default_factory=dict)

    async def bill(self, request: ModelRequest, at_s: float) -> tuple[list[Block], Bill]:
        blocks, model = await self.wire.blocks(request), request.model.model_id
        bill = self.caches[model].ask(blocks, at_s)
        self.bills[model] = self.bills.get(model, Bill()) + bill
        return blocks, bill

    @property
    def total(self) -> Bill:
        return sum(self.bills.values(), Bill())

    @property
    def weighted(self) -> float:
        return sum(self.caches[model].weigh(bill) for model, bill in self.bills.items())


@dataclass(frozen=True, slots=True)
class Row:
    """One run of the whole work. Shares are of the request before that is a prefix of the next one.

    ``shares``: outside of compactions and prunes. ``same_place``: and where the environment was told the same.
    ``causes``: why Anthropic's wire read anew. ``first`` is what it had never seen, which nobody is spared; the rest it
    had, and lost at that event; ``pauses`` are all others, and ``summaries`` are read by another model.
    """

    work: str
    window: int
    policy: str
    steps: int
    bills: Mapping[str, Bill]
    weighted: Mapping[str, float]
    summaries: int
    summary_tokens: int
    events: Mapping[str, int]
    causes: Mapping[str, int]
    shares: Sequence[float]
    same_place: Sequence[float]
    ms_per_step: float


class _Worker:
    """The provider the engine sees: plays the work, a step for each call, and bills each request on every wire."""

    def __init__(self, steps: Sequence[errand.Step], wires: Mapping[EndpointKind, Wired]) -> None:
        self.at_s = 0.0
        self.sent: list[tuple[ModelRequest, list[Block], Bill]] = []
        self.summaries = 0
        self.apart_s = 0.0
        """Spent on encoding and billing, which is the bench's own work."""
        self._steps = steps
        self._wires = wires

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        begin = time.perf_counter()
        self.at_s += _STEP_S
        billed = {name: await wired.bill(request, self.at_s) for name, wired in self._wires.items()}
        blocks, bill = billed["anthropic"]
        self.apart_s += time.perf_counter() - begin
        if request.model == _SUMMARISES:
            self.summaries += 1
            step = errand.Step(_SUMMARY)
        else:
            step = self._steps[len(self.sent)]
            self.sent.append((request, blocks, bill))
        chunks = said(step.says, id=f"text_{len(self.sent)}_{self.summaries}")
        if step.tool is not None:
            chunks += tool_call(step.tool, step.args, id=f"toolu_{len(self.sent):020}")
        for chunk in chunks:
            yield chunk
        output = tokens_of(len(step.says) + len(str(step.args or "")))
        yield StepEnd(usage=Usage(input=bill.full, output=output, cache_read=bill.read, cache_write=bill.written))

    async def close(self) -> None:
        pass


async def measure(bench: Bench) -> list[Row]:
    windows = (32_000,) if bench.quick else (200_000, 32_000)
    runs = [(_ENDLESS, "no compaction"), *((window, policy) for window in windows for policy in list(_POLICIES)[1:])]
    return [
        await _run(bench.path("work").with_suffix(""), work, *run, quick=bench.quick)
        for work in errand.WORKS
        for run in runs
    ]


async def _run(folder: Path, work: str, window: int, policy: str, *, quick: bool) -> Row:
    project = folder / "project"
    errand.make_project(project)
    turns = errand.turns_of(errand.WORKS[work], quick=quick)
    max_output = 4_000 if window < 100_000 else 32_000
    info = ModelInfo(model=_ANSWERS, window=window, max_output=max_output, summariser=_SUMMARISES)
    cheap = ModelInfo(model=_SUMMARISES, window=200_000, max_output=8_000)
    async with AsyncExitStack() as stack:
        wires = {
            kind: Wired(await stack.enter_async_context(open_wire(kind, names)), _caches(kind))
            for kind, names in _MODELS.items()
        }
        worker = _Worker([step for turn in turns for step in turn.steps], wires)
        providers = FakeProviders({"bench": worker}, infos=[info, cheap], default=_ANSWERS)
        url = f"sqlite:///{folder / 'store.db'}"
        engine = await stack.enter_async_context(clew.open(url, config=_POLICIES[policy], providers=providers))
        session = await engine.create_session(title="bench", workspace_root=project)
        allowed = (("edit", "./**"), ("bash", "sh test.sh *"))
        rules = [{"permission": name, "pattern": pattern, "action": "allow"} for name, pattern in allowed]
        await engine.set_permissions(session.id, rules)
        begin = time.perf_counter()
        for turn in turns:
            worker.at_s += turn.pause_s
            outcome = await (await engine.submit(session.id, turn.prompt, attended=False)).wait()
            if outcome.status != "completed":
                raise RuntimeError(f"a turn of the work ended as {outcome}")
        took_s = time.perf_counter() - begin - worker.apart_s
        line = await engine.host.store.load_line(session.id)
        made = [step for entry in line.turns for step in await engine.host.store.load_steps(entry.turn.id)]
        parts = [part.data for entry in line.turns for row in entry.messages for part in row.parts]
    if len(made) != len(worker.sent):
        raise RuntimeError(f"{len(worker.sent)} requests were sent and {len(made)} steps are booked")
    if failed := [part for part in parts if part.get("state") in ("output-error", "output-denied")]:
        raise RuntimeError(f"{len(failed)} calls of the work failed, first {failed[0]}")
    events, shares, same_place = _compare(worker.sent, [step.data["view"] for step in made])
    summarised = wires["anthropic"].bills.get(_SUMMARISES.model_id, Bill())
    return Row(
        work=work,
        window=window,
        policy=policy,
        steps=len(made),
        bills={name: wired.total for name, wired in wires.items()},
        weighted={name: wired.weighted for name, wired in wires.items()},
        summaries=worker.summaries,
        summary_tokens=summarised.total,
        events=events,
        causes={**_causes_of(worker.sent, [step.data["view"] for step in made]), "summaries": summarised.fresh},
        shares=shares,
        same_place=same_place,
        ms_per_step=took_s * 1000 / len(made),
    )


def _caches(kind: EndpointKind) -> Mapping[str, AnthropicCache | OpenAICache]:
    """Of each model. The small one of Anthropic keeps nothing below 4,096 tokens."""
    if kind == "anthropic":
        return {"answers": AnthropicCache(), "summarises": AnthropicCache(least=4_096)}
    return {name: OpenAICache() for name in _MODELS[kind]}


def _compare(
    sent: Sequence[tuple[ModelRequest, list[Block], Bill]], views: Sequence[Sequence[int]]
) -> tuple[dict[str, int], list[float], list[float]]:
    """What happened between each request and the one before, and how much of that was a prefix of it."""
    events = {"compactions": 0, "prunes": 0, "environments": 0}
    shares: list[float] = []
    same_place: list[float] = []
    for n in range(1, len(sent)):
        compacted, pruned = (views[n][kind] != views[n - 1][kind] for kind in (0, 1))
        moved = sent[n][0].system != sent[n - 1][0].system
        events["compactions"] += compacted
        events["prunes"] += pruned
        events["environments"] += moved
        if not (compacted or pruned):
            share = _prefix_share(sent[n - 1][1], sent[n][1])
            shares.append(share)
            if not moved:
                same_place.append(share)
    return events, shares, same_place


def _causes_of(
    sent: Sequence[tuple[ModelRequest, list[Block], Bill]], views: Sequence[Sequence[int]]
) -> dict[str, int]:
    """What was read anew, by why."""
    causes = {"first": 0, "compactions": 0, "prunes": 0, "pauses": 0}
    seen: set[str] = set()
    for n, (_, blocks, bill) in enumerate(sent):
        first = min(bill.fresh, tokens_of(sum(len(block.text) for block in blocks if block.text not in seen)))
        seen.update(block.text for block in blocks)
        compacted, pruned = (n > 0 and views[n][kind] != views[n - 1][kind] for kind in (0, 1))
        causes["first"] += first
        causes["compactions" if compacted else "prunes" if pruned else "pauses"] += bill.fresh - first
    return causes


def _prefix_share(before: Sequence[Block], after: Sequence[Block]) -> float:
    old, new = ("".join(block.text for block in blocks) for blocks in (before, after))
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if new.startswith(old[:middle]) else (low, middle - 1)
    return low / len(old)


def table(rows: Sequence[Row]) -> str:
    """Three tables: what is billed, why it is read anew, and what happened."""
    tables = ((_billed(rows), 4), (_reasons(rows), 3), (_events(rows), 3))
    return "\n\n".join(aligned(cells, [n >= left for n in range(len(cells[0]))]) for cells, left in tables)


def _billed(rows: Sequence[Row]) -> list[list[str]]:
    cells = [
        ["work", "window", "policy", "wire", "read anew", "of it full price", "of it written", "from cache", "weighted"]
    ]
    for row in rows:
        for wire, bill in row.bills.items():
            counts = (bill.fresh, bill.full, bill.written, bill.read, row.weighted[wire])
            cells.append([row.work, _window(row), row.policy, wire, *(f"{count:,.0f}" for count in counts)])
    return cells


def _reasons(rows: Sequence[Row]) -> list[list[str]]:
    head = ["work", "window", "policy", "read anew", "seen the first time", "after compactions", "after prunes"]
    cells = [[*head, "after pauses", "by summaries"]]
    for row in rows:
        counts = (sum(row.causes.values()), *row.causes.values())
        cells.append([row.work, _window(row), row.policy, *(f"{count:,}" for count in counts)])
    return cells


def _events(rows: Sequence[Row]) -> list[list[str]]:
    head = ["work", "window", "policy", "summary calls", "their tokens", "compactions", "prunes", "new environments"]
    cells = [[*head, "prefix, least", "median", "least, same environment", "ms a step"]]
    for row in rows:
        counts = (row.summaries, row.summary_tokens, *row.events.values())
        shares = (min(row.shares), median(row.shares), min(row.same_place))
        cells.append([row.work, _window(row), row.policy, *(f"{count:,}" for count in counts)])
        cells[-1] += [*(f"{share:.1%}" for share in shares), f"{row.ms_per_step:.0f}"]
    return cells


def _window(row: Row) -> str:
    return "without end" if row.window == _ENDLESS else f"{row.window // 1000}k"
