"""``clew export`` of many sessions: their rows as JSON lines or CSV, or as a folder of Parquet files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import clew
from clew.config import load_config, secret_values
from clew.errors import InvalidInput
from clew.fronts.cli.command import open_file, plural
from clew.fronts.cli.new_files import new_file, new_folder, refuse_existing, show_progress
from clew.interop.bulk import BulkFormat, LineFile, ParquetFolder, RowSink
from clew.interop.canonical import CsvLines
from clew.interop.redact import Redaction
from clew.session.history.bulk import BulkCounts, BulkQuery, export_rows
from clew.transcript.spend import parse_bound

__all__ = ["export_many", "read_query"]


def read_query(
    *, owner: str | None, workspace: str | None, agent: str | None, since: str | None, until: str | None
) -> BulkQuery:
    """Return the filters of the command line."""
    begin, end = parse_bound(since) or 0, parse_bound(until, is_end=True)
    return BulkQuery(owner=owner, workspace=workspace, agent=agent, since=begin, until=end)


async def export_many(store: str | None, query: BulkQuery, format: str, out: Path | None, *, redact: bool) -> None:
    """Write every matching session to a new file or folder; lines also to stdout."""
    if format not in get_args(BulkFormat):
        raise InvalidInput(f"many sessions are exported as {', '.join(get_args(BulkFormat))}, not as {format}")
    lines = CsvLines if format == "csv" else LineFile
    if format == "parquet" and out is None:
        raise InvalidInput("parquet needs --out, the folder to create")
    if out is not None:
        refuse_existing(out)
    async with open_file(store) as engine:
        redaction = Redaction(secret_values(load_config())) if redact else None
        if out is None:
            counts = await _write(engine, query, lines(sys.stdout.buffer), redaction)
            sys.stdout.flush()
        elif format == "parquet":
            with new_folder(out) as folder:
                tables = ParquetFolder(folder)
                counts = await _write(engine, query, tables, redaction)
                tables.close()
        else:
            with new_file(out) as file:
                counts = await _write(engine, query, lines(file), redaction)
    if out is not None:
        print(out)
    done = (plural(counts.sessions, "session"), plural(counts.messages, "message"), plural(counts.parts, "part"))
    print(f"clew: exported {', '.join(done)}", file=sys.stderr)


async def _write(engine: clew.Engine, query: BulkQuery, sink: RowSink, redaction: Redaction | None) -> BulkCounts:
    def progress(number: int, of: int) -> None:
        show_progress("exported", number, of)

    return await export_rows(engine.store, query, sink, redaction, progress)
