"""CONTEXT: the input tokens that a long piece of agentic work costs with prefix caching by the provider.

The work runs on the whole engine with its own tools; only the model is scripted. Each request is encoded as for the
APIs of Anthropic and OpenAI and billed by their rules; the engine receives the usage that Anthropic would bill.
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
from clew.testing.chunks import text as text_chunks
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
"""Duration of a model call and the tool call that it requests."""
_UNLIMITED: Final = 100_000_000
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
"""About 1,400 tokens, the same for every summary."""


@dataclass(slots=True)
class Wired:
    """The provider's side of one wire: a cache and a bill per model."""

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
    """One run of the whole work. A share is the part of a request that is a prefix of the next one.

    ``shares``: without compactions and prunes in between. ``same_environment``: those with an unchanged environment.
    ``causes``: uncached input tokens on Anthropic's wire, by cause. ``first`` was never sent before, so no cache can
    have it; the others were cached and lost at that event. ``pauses`` covers all other causes, and ``summaries`` is
    what the summarising model read.
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
    same_environment: Sequence[float]
    ms_per_step: float


class _Worker:
    """The engine's provider: plays the work, one step per call, and bills each request on every wire."""

    def __init__(self, steps: Sequence[errand.Step], wires: Mapping[EndpointKind, Wired]) -> None:
        self.at_s = 0.0
        self.sent: list[tuple[ModelRequest, list[Block], Bill]] = []
        self.summaries = 0
        self.overhead_s = 0.0
        """Time spent on encoding and billing, which the engine does not do."""
        self._steps = steps
        self._wires = wires

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        begin = time.perf_counter()
        self.at_s += _STEP_S
        billed = {name: await wired.bill(request, self.at_s) for name, wired in self._wires.items()}
        blocks, bill = billed["anthropic"]
        self.overhead_s += time.perf_counter() - begin
        if request.model == _SUMMARISES:
            self.summaries += 1
            step = errand.Step(_SUMMARY)
        else:
            step = self._steps[len(self.sent)]
            self.sent.append((request, blocks, bill))
        chunks = text_chunks(step.text, id=f"text_{len(self.sent)}_{self.summaries}")
        if step.tool is not None:
            chunks += tool_call(step.tool, step.args, id=f"toolu_{len(self.sent):020}")
        for chunk in chunks:
            yield chunk
        output = tokens_of(len(step.text) + len(str(step.args or "")))
        yield StepEnd(usage=Usage(input=bill.full, output=output, cache_read=bill.read, cache_write=bill.written))

    async def close(self) -> None:
        pass


async def measure(bench: Bench) -> list[Row]:
    windows = (32_000,) if bench.quick else (200_000, 32_000)
    runs = [(_UNLIMITED, "no compaction"), *((window, policy) for window in windows for policy in list(_POLICIES)[1:])]
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
        took_s = time.perf_counter() - begin - worker.overhead_s
        line = await engine.host.store.load_line(session.id)
        steps = [step for entry in line.turns for step in await engine.host.store.load_steps(entry.turn.id)]
        parts = [part.data for entry in line.turns for row in entry.messages for part in row.parts]
    if len(steps) != len(worker.sent):
        raise RuntimeError(f"{len(worker.sent)} requests were sent and {len(steps)} steps are recorded")
    if failed := [part for part in parts if part.get("state") in ("output-error", "output-denied")]:
        raise RuntimeError(f"{len(failed)} calls of the work failed, first {failed[0]}")
    events, shares, same_environment = _compare(worker.sent, [step.data["view"] for step in steps])
    summarised = wires["anthropic"].bills.get(_SUMMARISES.model_id, Bill())
    return Row(
        work=work,
        window=window,
        policy=policy,
        steps=len(steps),
        bills={name: wired.total for name, wired in wires.items()},
        weighted={name: wired.weighted for name, wired in wires.items()},
        summaries=worker.summaries,
        summary_tokens=summarised.total,
        events=events,
        causes={**_causes_of(worker.sent, [step.data["view"] for step in steps]), "summaries": summarised.uncached},
        shares=shares,
        same_environment=same_environment,
        ms_per_step=took_s * 1000 / len(steps),
    )


def _caches(kind: EndpointKind) -> Mapping[str, AnthropicCache | OpenAICache]:
    """Return a cache per model. Anthropic's small model caches no prefix below 4,096 tokens."""
    if kind == "anthropic":
        return {"answers": AnthropicCache(), "summarises": AnthropicCache(min_tokens=4_096)}
    return {name: OpenAICache() for name in _MODELS[kind]}


def _compare(
    sent: Sequence[tuple[ModelRequest, list[Block], Bill]], views: Sequence[Sequence[int]]
) -> tuple[dict[str, int], list[float], list[float]]:
    """Count the events between consecutive requests, and return the shares of shared prefixes."""
    events = {"compactions": 0, "prunes": 0, "environments": 0}
    shares: list[float] = []
    same_environment: list[float] = []
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
                same_environment.append(share)
    return events, shares, same_environment


def _causes_of(
    sent: Sequence[tuple[ModelRequest, list[Block], Bill]], views: Sequence[Sequence[int]]
) -> dict[str, int]:
    """Return the uncached tokens by cause."""
    causes = {"first": 0, "compactions": 0, "prunes": 0, "pauses": 0}
    seen: set[str] = set()
    for n, (_, blocks, bill) in enumerate(sent):
        first = min(bill.uncached, tokens_of(sum(len(block.text) for block in blocks if block.text not in seen)))
        seen.update(block.text for block in blocks)
        compacted, pruned = (n > 0 and views[n][kind] != views[n - 1][kind] for kind in (0, 1))
        causes["first"] += first
        causes["compactions" if compacted else "prunes" if pruned else "pauses"] += bill.uncached - first
    return causes


def _prefix_share(before: Sequence[Block], after: Sequence[Block]) -> float:
    old, new = ("".join(block.text for block in blocks) for blocks in (before, after))
    low, high = 0, min(len(old), len(new))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if new.startswith(old[:middle]) else (low, middle - 1)
    return low / len(old)


def table(rows: Sequence[Row]) -> str:
    """Return three tables: the bills, the causes of uncached reads, and the events."""
    tables = ((_billed(rows), 4), (_reasons(rows), 3), (_events(rows), 3))
    return "\n\n".join(aligned(cells, [n >= left for n in range(len(cells[0]))]) for cells, left in tables)


def _billed(rows: Sequence[Row]) -> list[list[str]]:
    cells = [
        ["work", "window", "policy", "wire", "uncached", "at full price", "written to cache", "from cache", "weighted"]
    ]
    for row in rows:
        for wire, bill in row.bills.items():
            counts = (bill.uncached, bill.full, bill.written, bill.read, row.weighted[wire])
            cells.append([row.work, _window(row), row.policy, wire, *(f"{count:,.0f}" for count in counts)])
    return cells


def _reasons(rows: Sequence[Row]) -> list[list[str]]:
    head = ["work", "window", "policy", "uncached", "sent the first time", "after compactions", "after prunes"]
    cells = [[*head, "after pauses", "by summaries"]]
    for row in rows:
        counts = (sum(row.causes.values()), *row.causes.values())
        cells.append([row.work, _window(row), row.policy, *(f"{count:,}" for count in counts)])
    return cells


def _events(rows: Sequence[Row]) -> list[list[str]]:
    head = ["work", "window", "policy", "summary calls", "summary tokens", "compactions", "prunes", "new environments"]
    cells = [[*head, "prefix, min", "median", "min, same environment", "ms per step"]]
    for row in rows:
        counts = (row.summaries, row.summary_tokens, *row.events.values())
        shares = (min(row.shares), median(row.shares), min(row.same_environment))
        cells.append([row.work, _window(row), row.policy, *(f"{count:,}" for count in counts)])
        cells[-1] += [*(f"{share:.1%}" for share in shares), f"{row.ms_per_step:.0f}"]
    return cells


def _window(row: Row) -> str:
    return "unlimited" if row.window == _UNLIMITED else f"{row.window // 1000}k"
