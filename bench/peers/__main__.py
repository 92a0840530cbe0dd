"""``python -m bench.peers [--quick] [--json FILE]``: the same turns on clew, the floors and two other engines.

Each peer gets its own environment, created once from the package index; one that cannot be created is skipped with the
reason. All get the same turns, with a scripted model of their own kind.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import orjson

from bench.child import peer_environment, run_child
from bench.measure import Bench, median
from bench.streams import acknowledged_rate
from bench.table import aligned, machine
from bench.turn_work import turn_work

_PEERS: Final = {
    "openai-agents": ("bench.peers.openai_agents", ("openai-agents==0.24.0",)),
    "agno": ("bench.peers.agno", ("agno==3.1.10", "sqlalchemy[asyncio]", "aiosqlite")),
}
_SIDES: Final = {"hand": "hand-written", "journal": "hand-written, chunks durable", "clew": "clew"}
_COLUMNS: Final = {
    "ms": "ms",
    "cpu": "CPU ms",
    "model": "until the model",
    "first": "first word",
    "written": "written KB",
    "cold": "first turn ms",
    "rss": "MB",
}
_ROOT: Final = Path(__file__).resolve().parents[2]
_HOME: Final = _ROOT / "build" / "bench-peers"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="Compare turns with two other engines.")
    parser.add_argument("--quick", action="store_true", help="fewer turns, one round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the values of every round to a file")
    options = parser.parse_args(arguments)
    about = machine(quick=options.quick)
    print(", ".join(f"{key} {value}" for key, value in about.items() if key != "quick"))
    homes = {name: home for name, (_, packages) in _PEERS.items() if (home := peer_environment(_HOME / name, packages))}
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        found = asyncio.run(_measure(Bench(Path(folder), quick=options.quick), homes))
    late = 50 if options.quick else 500
    for turns, when in ((0, "At the start of a session"), (late, f"After {late} turns")):
        head = ("", *_COLUMNS.values())
        rows = [
            (name, *(_cell(rounds, key) for key in _COLUMNS)) for (name, of), rounds in found.items() if of == turns
        ]
        print(f"\n{when}\n\n{aligned([head, *rows], (False, *(True for _ in _COLUMNS)))}")
    rates = [
        (name, _cell(rounds, "chunks")) for (name, of), rounds in found.items() if of == 0 and "chunks" in rounds[0]
    ]
    if rates:
        print(f"\nEach chunk durable before the next\n\n{aligned([('', 'chunks/s'), *rates], (False, True))}")
    if options.json is not None:
        sides = [{"side": name, "turns": of, "rounds": rounds} for (name, of), rounds in found.items()]
        options.json.write_bytes(orjson.dumps({"machine": about, "sides": sides}, option=orjson.OPT_INDENT_2))
    return 0


async def _measure(bench: Bench, homes: dict[str, Path]) -> dict[tuple[str, int], list[dict[str, float]]]:
    """Run all sides in alternation, round by round."""
    late, count = bench.size(500, 50), bench.size(40, 5)
    found: dict[tuple[str, int], list[dict[str, float]]] = {}
    for round_ in range(bench.rounds):
        for turns in (0, late):
            # The warm-up turns, and those that count.
            works = bench.folder / f"works-{turns}.json"
            works.write_bytes(orjson.dumps([asdict(turn_work(n)) for n in range(turns + 4 + count)]))
            for side, name in _SIDES.items():
                report = await run_child("bench.turn_side", side, turns, count, bench.folder)
                if side == "clew" and not turns:
                    report["chunks"] = await acknowledged_rate(bench, 1, bench.size(3_000, 300), "NORMAL")
                found.setdefault((name, turns), []).append(report)
            for name, python in homes.items():
                folder = bench.folder / f"{name}-{turns}-{round_}"
                folder.mkdir()
                found.setdefault((name, turns), []).append(_peer(python, _PEERS[name][0], works, turns, folder))
    return found


def _peer(python: Path, module: str, works: Path, turns: int, folder: Path) -> dict[str, float]:
    environ = {**os.environ, "PYTHONPATH": str(_ROOT), "OPENAI_API_KEY": "sk-none", "AGNO_TELEMETRY": "false"}
    command = [str(python), "-m", module, str(works), str(turns), str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environ)
    report: dict[str, Any] = orjson.loads(done.stdout.splitlines()[-1])
    if not report["chunks"] or turns:
        del report["chunks"]
    return report


def _cell(rounds: list[dict[str, float]], key: str) -> str:
    value = median([one[key] for one in rounds])
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
