"""P11: the cost of ``import clew``, and the libraries that it must not load."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.measure import Bench, Goal, Line, ratios

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


def _run(bench: Bench, modules: str) -> tuple[float, set[str]]:
    """Import in a new process with its own bytecode cache: a checkout may lack the bytecode of an installed program."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = str(bench.folder / "bytecode")
    program = _PROGRAM.format(modules=modules)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ)
    took, loaded = done.stdout.splitlines()
    return float(took) * 1000, set(loaded.split())


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
    return lines
