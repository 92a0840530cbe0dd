"""A session with a small window, a scripted model and a scripted summariser: what the tests about room stand on."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import clew
from clew.config import CompactionConfig, PruningConfig
from clew.providers.base import ModelInfo, ModelRequest, Provider
from clew.session.api import Engine
from clew.session.prompt.submission import TurnOutcome
from clew.store.unit import PatchSession, Unit
from clew.testing.clock import FakeClock
from clew.testing.scenario import Scenario
from clew.testing.scripted import FakeProviders, Piece, ScriptedModel, Turnout, say, then
from clew.transcript.message import Message
from clew.transcript.session import Model
from clew.transcript.turn import Tree, Turn
from clew.transcript.usage import Usage

__all__ = [
    "Compacting",
    "Playing",
    "answer",
    "bulk",
    "info",
    "opened",
    "passing",
    "settings",
    "summary",
    "texts",
]


def summary(goal: str, *more: str) -> str:
    """A summary as a good summariser writes it."""
    context = "".join(f"- {line}\n" for line in more) or "- (none)\n"
    return (
        f"## Goal\n- {goal}\n\n## Constraints & Preferences\n- (none)\n\n## Progress\n### Done\n- [x] some\n"
        "### In Progress\n- [ ] more\n### Blocked\n- (none)\n\n## Key Decisions\n- **this**: that\n\n"
        f"## Next Steps\n1. go on\n\n## Critical Context\n{context}"
    )


def bulk(word: str, tokens: int = 1_000) -> str:
    """A text that is estimated at so many tokens, made of one word."""
    chars = tokens * 40 // 11
    return (f"{word} " * (chars // (len(word) + 1) + 1))[:chars].rstrip().ljust(chars, ".")


def answer(text: str = "ok", used: int | None = None) -> Turnout:
    """A step that says something; ``used`` is what the provider counted for all of it."""
    return then(say(text), usage=None if used is None else Usage(input=used - 5, output=5))


def info(
    name: str, window: int, max_output: int = 1_000, *, tools: bool = False, summariser: str | None = "cheap/model"
) -> ModelInfo:
    provider, model = name.split("/")
    cheap = Model(*summariser.split("/")) if summariser else None
    return ModelInfo(model=Model(provider, model), window=window, max_output=max_output, tools=tools, summariser=cheap)


def settings(**fields: Any) -> clew.Config:
    """A configuration; ``pruning`` is apart, the other fields are those of compaction."""
    pruning = PruningConfig(**fields.pop("pruning", {}))
    recovery = fields.pop("smart_recovery", None)
    if recovery is not None:
        fields["smart_recovery"] = clew.config.SmartRecovery(**recovery)
    return clew.Config(compaction=CompactionConfig(**fields), pruning=pruning)


class Playing(ScriptedModel):
    """A model that plays what was added, in order, and between and after that what it does otherwise."""

    def __init__(self, entries: Iterable[Any] = (), *, otherwise: Any = None) -> None:
        super().__init__(otherwise=self._play)
        self._coming = deque(entries)
        self._else = otherwise

    def add(self, *entries: Any) -> None:
        self._coming.extend(entries)

    def _play(self, request: ModelRequest) -> Any:
        entry = self._coming.popleft() if self._coming else self._else
        return entry(request) if callable(entry) and not isinstance(entry, Piece | Turnout) else entry


class Compacting(Scenario):
    """A scenario with a summariser beside its model, and with looks at what came of it."""

    def __init__(self, engine: Engine, model: ScriptedModel, summariser: ScriptedModel, folder: Path) -> None:
        super().__init__(engine, model, folder)
        self.summariser = summariser
        self.events: list[tuple[str, dict[str, Any]]] = []

    async def begin(self, **fields: Any) -> Compacting:
        await super().begin(**{"workspace_root": None, **fields})
        return self

    async def say(self, text: str, **options: Any) -> TurnOutcome:
        """Send a prompt and wait for its end, and for what comes after it."""
        outcome = await (await self.send(text, **options)).wait()
        await self.rest()
        return outcome

    async def rest(self) -> None:
        """Until nothing runs, also nothing that begins at the end of a run."""
        await self.settled()
        async with self.engine._runtime.sessions.lock(self.id):
            pass
        await self.settled()

    async def allow(self, *tools: str) -> None:
        rules = tuple({"permission": tool, "pattern": "*", "action": "allow"} for tool in tools)
        await self.engine.store.commit(Unit(self.id, (PatchSession(permissions=rules),)))

    async def tree(self) -> Tree:
        return await self.engine.store.load_tree(self.id)

    async def turns(self) -> list[Turn]:
        """The turns on the line, root first."""
        return [entry.turn for entry in (await self.engine.store.load_line(self.id)).turns]

    async def kinds(self) -> list[str]:
        """The turns on the line by kind."""
        return [turn.kind for turn in await self.turns()]

    async def parts(self) -> list[dict[str, Any]]:
        """What the compactions on the line recorded, oldest first."""
        line = (await self.engine.store.load_line(self.id)).turns
        rows = [row for entry in line for row in entry.messages if entry.turn.kind == "compaction"]
        return [row.parts[0].data["data"] for row in rows]

    async def view(self) -> list[str]:
        """What the next call would send, each message by its first words."""
        return texts(await self.engine.messages(self.id, view="model"))

    def sent(self, number: int = -1) -> list[str]:
        """What the model was sent, each message by its first words."""
        return texts(self.model.requests[number].messages)

    async def is_sound(self) -> None:
        assert await self.check() == []


def texts(messages: Sequence[Message]) -> list[str]:
    """Messages by role and first words; a summary by its goal, a call by its tool and the start of its output."""
    return [f"{message.role}: {' | '.join(filter(None, map(_words, message.parts)))}" for message in messages]


def _words(part: Mapping[str, Any]) -> str:
    if part.get("type") == "text":
        text = str(part["text"])
        if text.startswith("[When this was sent:]"):
            return ""
        if "<summary>" in text:
            return "summary " + text.split("## Goal\n- ")[1].split("\n")[0]
        return text.split(" ")[0] if len(text) > 40 else text
    if "toolCallId" in part:
        return f"{str(part['type']).removeprefix('tool-')} → {str(part.get('output', part['state']))[:24]}"
    return "" if part.get("type") == "step-start" else f"[{part.get('type')}]"


async def passing(clock: FakeClock, awaitable: Any, *, step_ms: int = 500) -> Any:
    """Let fake time pass until something is done."""
    task = asyncio.ensure_future(awaitable)
    while not task.done():
        for _ in range(20):
            await asyncio.sleep(0)
        # What is done in a thread needs a moment that is real.
        await asyncio.sleep(0.001)
        if not task.done():
            clock.advance(step_ms)
    return task.result()


@asynccontextmanager
async def opened(
    folder: Path,
    script: Any = (),
    summaries: Any = (),
    *,
    window: int = 10_000,
    max_output: int = 1_000,
    tools: Sequence[Any] = (),
    config: clew.Config | None = None,
    url: str = "memory:",
    infos: Sequence[ModelInfo] = (),
    more: Mapping[str, Provider] | None = None,
    clock: Any = None,
    goal: str = "the goal",
) -> AsyncIterator[Compacting]:
    """An engine whose ``test/model`` has a window of so many tokens and ``cheap/model`` as its summariser."""
    model = script if isinstance(script, ScriptedModel) else Playing(script, otherwise=answer())
    good: Piece = say(summary(goal))
    cheap = summaries if isinstance(summaries, ScriptedModel) else Playing(summaries, otherwise=good)
    known = [
        info("test/model", window, max_output, tools=bool(tools)),
        info("cheap/model", 200_000, 4_000, summariser=None),
        *infos,
    ]
    providers = FakeProviders({"test": model, "cheap": cheap, **(more or {})}, infos=known)
    async with clew.open(
        url,
        config=config or clew.Config(),
        config_dir=folder / "clew",
        providers=providers,
        tools=tools,
        clock=clock,
    ) as engine:
        yield Compacting(engine, model, cheap, folder)
