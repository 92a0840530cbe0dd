"""``python -m bench [ids…] [--quick] [--json FILE] [--out FILE]``: measure, and print a line per measurement.

A failure is reported and does not stop the other workloads; the files already hold what was measured before it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from bench import (
    append,
    branching,
    context,
    engine_path,
    event_log,
    fanout,
    files,
    growth,
    importing,
    listing,
    load,
    many,
    pace,
    planning,
    postgres,
    replicas,
    rewinding,
    serving,
    size,
    streams,
    turns,
)
from bench.measure import Bench, Line
from bench.table import as_json, machine, markdown, write_page

WORKLOADS: Final[dict[str, Callable[[Bench], Awaitable[list[Line]]]]] = {
    "P1": append.measure,
    "P2": load.measure,
    "P3": listing.measure,
    "P4": streams.measure_rate,
    "P5": pace.measure,
    "P6": size.measure_written,
    "P7": branching.measure,
    "WAIT": branching.measure_waits,
    "P8": rewinding.measure,
    "P9": engine_path.measure,
    "P10": fanout.measure,
    "P11": importing.measure,
    "P12": size.measure_stored,
    "TURN": turns.measure,
    "ACK": streams.measure_acknowledged,
    "SERVER": serving.measure,
    "GROW": growth.measure,
    "MANY": many.measure,
    "PLAN": planning.measure,
    "LOG": event_log.measure,
    "PG": postgres.measure,
    "REPLICAS": replicas.measure,
}
SLOW: Final[dict[str, Callable[[Bench], Awaitable[list[Line]]]]] = {"FILES": files.measure}
"""Workloads that take minutes each; they run only when named."""
ALL: Final = {**WORKLOADS, **SLOW}
CONTEXT: Final = "CONTEXT"
"""Counts tokens instead of time, the same on every machine; it has its own tables and runs only when named."""
NOT_YET: Final[tuple[tuple[str, str], ...]] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure clew against a hand-written floor.")
    parser.add_argument("ids", nargs="*", metavar="id", help=f"what to measure, of {' '.join(ALL)}, or {CONTEXT}")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the values of every round to a file")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the table as Markdown, into its section if the file has one"
    )
    options = parser.parse_args(arguments)
    requested = [id_.upper() for id_ in options.ids] or list(WORKLOADS)
    for id_ in requested:
        if id_ not in ALL and id_ != CONTEXT:
            parser.error(f"{id_} is not measured yet" if id_ in dict(NOT_YET) else f"unknown id {id_}")
    not_yet = () if options.ids else NOT_YET
    about = machine(quick=options.quick)
    print(", ".join(f"{key} {value}" for key, value in about.items() if key != "quick"))
    if options.quick:
        print("quick: smaller sizes; the goals do not apply to them")
    begin = time.perf_counter()
    lines: list[Line] = []
    rows: list[context.Row] = []
    failed: list[tuple[str, str]] = []
    for id_ in requested:
        began = time.perf_counter()
        try:
            if id_ == CONTEXT:
                rows = asyncio.run(_measure_context(quick=options.quick))
            else:
                lines += asyncio.run(_measure(id_, quick=options.quick))
        except Exception as error:
            failed.append((id_, f"{type(error).__name__}: {error}"))
            traceback.print_exc()
        print(f"{id_} measured in {time.perf_counter() - began:.0f} s", file=sys.stderr)
        about |= {"seconds": round(time.perf_counter() - begin), "load after": round(os.getloadavg()[0], 1)}
        if options.json is not None:
            options.json.write_bytes(as_json(lines, (*failed, *not_yet), about, rows))
        if options.out is not None and lines:
            write_page(options.out, lines, (*failed, *not_yet), about)
    if lines:
        print(f"\n{markdown(lines, (*failed, *not_yet))}\n")
    if rows:
        print(f"\n{context.table(rows)}\n")
    print(f"{about['seconds']} s, load {about['load']} before and {about['load after']} after")
    if about["load"] > (os.cpu_count() or 1):
        print("The machine was busy: the ratios are unreliable, and the tails meaningless.")
    return 1 if failed else 0


async def _measure(id_: str, *, quick: bool) -> list[Line]:
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        return await ALL[id_](Bench(Path(folder), quick=quick))


async def _measure_context(*, quick: bool) -> list[context.Row]:
    with tempfile.TemporaryDirectory(prefix="clew-bench-") as folder:
        return await context.measure(Bench(Path(folder), quick=quick))


if __name__ == "__main__":
    sys.exit(main())
