"""Formats results as a table and as JSON."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson

from bench.measure import Line, median

__all__ = ["aligned", "as_json", "machine", "markdown", "write_page"]

_SECTION = re.compile(r"(?<=^## All lines\n\n).*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)

_HEAD = ("id", "what", "unit", "raw", "clew", "ratio", "goal", "")
_RIGHT = (False, False, False, True, True, True, True, False)


def machine(*, quick: bool) -> dict[str, Any]:
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "orjson": orjson.__version__,
        "msgspec": msgspec.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 1),
        "quick": quick,
    }


def markdown(lines: Sequence[Line], not_yet: Sequence[tuple[str, str]]) -> str:
    """Return a table for terminals and pages."""
    cells = [_HEAD, *(_row(line) for line in lines)]
    cells += [(id_, what, "", "", "", "", "", "not yet") for id_, what in not_yet]
    return aligned(cells, _RIGHT)


def write_page(path: Path, lines: Sequence[Line], not_yet: Sequence[tuple[str, str]], about: Mapping[str, Any]) -> None:
    """Write the table into its section of the page, or add the section."""
    described = ", ".join(f"{key} {value}" for key, value in about.items() if key != "quick")
    section = f"{described}.\n\n{_narrow(markdown(lines, not_yet))}\n\n"
    page = path.read_text(encoding="utf-8") if path.exists() else "## All lines\n\n"
    if not _SECTION.search(page):
        page = f"{page.rstrip()}\n\n## All lines\n\n"
    path.write_text(_SECTION.sub(lambda _: section, page).rstrip() + "\n", encoding="utf-8")


def _narrow(table: str) -> str:
    """Remove the padding of the columns: a page wraps them anyway."""
    return re.sub(r" {2,}", " ", re.sub(r"-{4,}", "---", table)).replace("| |", "|  |")


def aligned(cells: Sequence[Sequence[str]], right: Sequence[bool]) -> str:
    """Return cells as a table, the head first; ``right`` marks columns of numbers."""
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = [("-" * (width - 1) + ":" if number else "-" * width) for width, number in zip(widths, right, strict=True)]
    rows = (
        (
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(row, widths, right, strict=True)
        )
        for row in (cells[0], rule, *cells[1:])
    )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(line: Line) -> tuple[str, ...]:
    verdict = {True: "ok", False: "MISS", None: ""}[line.ok]
    return (
        line.id,
        line.what,
        line.unit,
        _spread(line.raw),
        _spread(line.clew),
        _spread(line.judged),
        str(line.goal) if line.goal else "",
        verdict,
    )


def _spread(values: Sequence[float]) -> str:
    """Return the median, followed by the minimum and maximum if they differ."""
    if not values:
        return "–"
    middle, low, high = (_number(value) for value in (median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low}–{high})"


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if value < 10 else f"{value:.1f}"


def as_json(
    lines: Sequence[Line], not_yet: Sequence[tuple[str, str]], about: dict[str, Any], context: Sequence[Any]
) -> bytes:
    found = [
        {
            "id": line.id,
            "what": line.what,
            "unit": line.unit,
            "raw": list(line.raw),
            "clew": list(line.clew),
            "judged": list(line.judged),
            "goal": str(line.goal) if line.goal else None,
            "ok": line.ok,
        }
        for line in lines
    ]
    return orjson.dumps(
        {"machine": about, "lines": found, "not_yet": [list(pair) for pair in not_yet], "context": list(context)},
        option=orjson.OPT_INDENT_2,
    )
