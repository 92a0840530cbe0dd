"""P11: the cost of ``import clew``, the libraries that it must not load, and the start of commands that read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Final

import clew
from bench.fill import add_sessions, fill_turns
from bench.measure import Bench, Goal, Line, ratios
from clew.ids import Mint

__all__ = ["measure"]

_PROGRAM = """
import sys, time
begin = time.perf_counter()
import {modules}
took = time.perf_counter() - begin
print(took)
print(*sorted({{name.partition(".")[0] for name in sys.modules}}))
"""
_FLOOR = "asyncio, sqlite3, orjson, msgspec"
_HEAVY = frozenset(
    (
        *("acp", "anthropic", "cyclopts", "fastapi", "genai_prices", "httpx", "mcp", "openai", "opentelemetry"),
        *("psycopg", "pydantic", "pydantic_ai", "redis", "rich", "sse_starlette", "starlette", "uvicorn"),
    )
)
"""Libraries of providers, servers, transports and terminals that ``import clew`` must not load."""


_SESSIONS: Final = 1_000


def _python(bench: Bench, *arguments: str) -> str:
    """Run Python with its own bytecode cache: a checkout may lack the bytecode of an installed program."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = str(bench.folder / "bytecode")
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout


def _run(bench: Bench, modules: str) -> tuple[float, set[str]]:
    took, loaded = _python(bench, "-c", _PROGRAM.format(modules=modules)).splitlines()
    return float(took) * 1000, set(loaded.split())


def _timed(bench: Bench, *arguments: str) -> float:
    begin = time.perf_counter()
    _python(bench, *arguments)
    return (time.perf_counter() - begin) * 1000


async def _measure_commands(bench: Bench) -> list[Line]:
    """Measure commands that read, each from its start to its end, next to a process that imports clew."""
    lines = []
    for kind, url in (
        ("sqlite", f"sqlite:///{bench.path('commands')}"),
        ("jsonl", f"jsonl:{bench.path('commands')}-j"),
    ):
        async with clew.open(url, config=clew.Config()) as engine:
            mint = Mint()
            session_id = await add_sessions(engine.store, mint, _SESSIONS, lambda n: {"title": f"Session {n}"})
            await fill_turns(engine.store, mint, session_id, range(3))
            await engine.search("crash", wait=True)
        commands = {"ls": ["ls"], "show": ["show", session_id], "search": ["search", "crash"]}
        raw: list[float] = []
        ours: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(bench.size(10, 5) + 1):
            imported = _timed(bench, "-c", "import clew")
            took = {name: _timed(bench, "-m", "clew", *words, "--store", url) for name, words in commands.items()}
            if number:  # the first round writes the bytecode
                raw.append(imported)
                for name, ms in took.items():
                    ours[name].append(ms)
        lines += [
            Line(
                "P11",
                f"`clew {name}`, {_SESSIONS:,} sessions, {kind} ÷ a process that imports clew",
                "ms",
                raw,
                times,
                ratios(times, raw),
                Goal("≤", 2),
            )
            for name, times in ours.items()
        ]
    return lines


async def measure(bench: Bench) -> list[Line]:
    raw: list[float] = []
    ours: list[float] = []
    heavy: set[str] = set()
    for modules in (_FLOOR, "clew"):
        _run(bench, modules)  # warms the disk cache and the bytecode
    for _ in range(bench.size(9, 5)):
        raw.append(_run(bench, _FLOOR)[0])
        took, loaded = _run(bench, "clew")
        ours.append(took)
        heavy |= loaded & _HEAVY
    lines = [
        Line(
            "P11",
            f"import clew ÷ import {_FLOOR.replace(', ', ' + ')}",
            "ms",
            raw,
            ours,
            ratios(ours, raw),
            Goal("≤", 2),
        ),
        Line("P11", "import clew", "ms", (), ours, ours, Goal("≤", 300)),
    ]
    count = float(len(heavy))
    named = f": {', '.join(sorted(heavy))}" if heavy else ""
    lines.append(
        Line("P11", f"provider, server or MCP libraries loaded{named}", "", (), [count], [count], Goal("≤", 0))
    )
    return [*lines, *await _measure_commands(bench)]
