"""``clew export`` of many sessions: their rows as JSON lines, CSV or Parquet, or a SQLite file of the three tables."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import sys
from pathlib import Path
from typing import get_args

from clew.config import secret_values
from clew.errors import InvalidInput
from clew.fronts.cli.command import open_file, plural, show_progress
from clew.fronts.cli.new_files import new_file, new_folder, refuse_existing
from clew.interop import BulkFormat
from clew.interop.canonical import CsvLines, JsonLines
from clew.interop.parquet import ParquetFolder
from clew.interop.redact import Redaction, redact_session
from clew.long_work import run_long
from clew.session.history.bulk import BulkQuery, export_rows
from clew.store.portable import load_portable
from clew.store.sql.sqlite.plain_file import new_names, plain_file

__all__ = ["export_many", "export_tables"]


async def export_many(store: str | None, query: BulkQuery, format: str, out: Path | None, *, redact: bool) -> None:
    """Write every matching session to a new file or folder; lines also to stdout."""
    if format not in get_args(BulkFormat):
        raise InvalidInput(f"many sessions are exported as {', '.join(get_args(BulkFormat))}, not as {format}")
    lines = CsvLines if format == "csv" else JsonLines
    if format == "parquet" and out is None:
        raise InvalidInput("parquet needs --out, the folder to create")
    if out is not None:
        refuse_existing(out)
    async with open_file(store) as engine:
        redaction = Redaction(secret_values(engine.config)) if redact else None
        progress = functools.partial(show_progress, "exported")
        write = functools.partial(export_rows, engine.store, query, redaction=redaction, progress=progress)
        if out is None:
            counts = await write(lines(sys.stdout.buffer))
            sys.stdout.flush()
        elif format == "parquet":
            with new_folder(out) as folder:
                tables = ParquetFolder(folder)
                counts = await write(tables)
                tables.close()
        else:
            with new_file(out) as file:
                counts = await write(lines(file))
    if out is not None:
        print(out)
    done = (plural(counts.sessions, "session"), plural(counts.messages, "message"), plural(counts.parts, "part"))
    print(f"clew: exported {', '.join(done)}", file=sys.stderr)


async def export_tables(session: str | None, target: Path, *, redact: bool, store: str | None) -> None:
    """Write one session, or all of them, to a new SQLite file with the format's three tables."""
    async with open_file(store) as engine:
        secrets = secret_values(engine.config) if redact else ()
        known = await engine.store.session_ids()
        wanted = known if session is None else ((await engine.get_session(session)).id,)
        names = new_names(known, engine.store.capabilities.session_ids, engine.mint)
        redacted = 0
        with contextlib.ExitStack() as undo:
            file = undo.enter_context(plain_file(target, lambda id_: names.get(id_, id_), engine.mint))
            for session_id in wanted:
                portable = await load_portable(engine.store, session_id, keep_damaged=True)
                if redact:
                    portable = await run_long(redact_session, portable, secrets)
                redacted += portable.redacted
                await asyncio.to_thread(file.add, portable)
    about = plural(len(wanted), "session") + (f", {plural(redacted, 'secret')} redacted" if redacted else "")
    print(f"clew: {about}", file=sys.stderr)
    print(target)
