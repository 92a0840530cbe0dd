"""``python -m bench.kill_matrix [--peer NAME …] [--json FILE] [--out PAGE]``: kill clew and six other libraries.

Each library gets its own environment below ``build/``, created once from the package index; one that cannot be created
is skipped with the reason. The tables go to the page between its markers.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Final

import orjson

from bench.child import peer_environment
from bench.kill_matrix.kills import SCENARIOS, Facts, Kills, Process, Start
from bench.kill_matrix.report import page_with, tables

PEERS: Final[dict[str, tuple[str, ...]]] = {
    "openai-agents": ("openai-agents==0.24.0",),
    "pydantic-ai": ("pydantic-ai-slim[openai,dbos]==2.68.0", "dbos==3.4.0"),
    "langgraph": (
        *("langgraph==1.2.22", "langgraph-checkpoint-sqlite==3.1.2", "langchain==1.4.7"),
        *("langchain-openai==1.7.3", "aiosqlite==0.22.1"),
    ),
    "agno": ("agno==3.1.10", "openai==3.51.0", "sqlalchemy[asyncio]==2.1.9", "aiosqlite==0.22.1"),
    "strands": ("strands-agents[openai]==1.62.0",),
    "adk": ("google-adk[db,mcp]==2.13.0", "litellm==1.106.2", "aiosqlite==0.22.1"),
}
_ROOT: Final = Path(__file__).resolve().parents[2]
_HOME: Final = _ROOT / "build" / "kill-matrix"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.kill_matrix", description="Kill clew and other libraries.")
    names = ["clew", *PEERS]
    parser.add_argument("--peer", action="append", choices=names, metavar="NAME", help=f"only this: {', '.join(names)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found to a file")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="write the tables into a page, between its markers")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep files, logs and recorded requests there")
    options = parser.parse_args(arguments)
    found: dict[str, dict[str, Facts]] = {}
    with tempfile.TemporaryDirectory(prefix="clew-kill-matrix-") as temporary:
        for name in options.peer or names:
            python = Path(sys.executable) if name == "clew" else peer_environment(_HOME / name, PEERS[name])
            if python is None:
                continue
            kills = Kills(_starter(python, name), (options.keep or Path(temporary)) / name)
            found[name] = {}
            for scenario in SCENARIOS:
                found[name][scenario] = kills.run(scenario)
                print(f"{name}, {scenario}: {orjson.dumps(found[name][scenario]).decode()}", flush=True)
    ran = f"Run on {date.today()} with Python {platform.python_version()} on {platform.system()}."
    text = f"{ran}\n\n{tables(found)}"
    print(f"\n{text}")
    if options.json is not None:
        options.json.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2))
    if options.out is not None:
        options.out.write_text(page_with(options.out.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


def _starter(python: Path, name: str) -> Start:
    module = f"bench.kill_matrix.peers.{name.replace('-', '_')}"

    def start(arguments: Sequence[str], environ: dict[str, str], log: Path) -> Process:
        command = [str(python), "-m", module, *arguments]
        with log.open("ab") as errors:
            return subprocess.Popen(
                command, env=environ, cwd=log.parent, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors
            )

    return start


if __name__ == "__main__":
    sys.exit(main())
