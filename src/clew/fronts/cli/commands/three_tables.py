"""``clew export --to 002``: sessions as a SQLite file with the format's three tables, for other programs."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from clew.config import secret_values
from clew.fronts.cli.command import open_file, plural
from clew.long_work import run_long

__all__ = ["export_tables"]


async def export_tables(session: str | None, target: Path, *, redact: bool, store: str | None) -> str:
    """Write one session, or all of them, to a new file; return a sentence that says what is in it."""
    from clew.interop.redact import redact_session
    from clew.store.portable import load_portable
    from clew.store.sql.sqlite.plain_file import new_names, plain_file

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
    return plural(len(wanted), "session") + (f", {plural(redacted, 'secret')} redacted" if redacted else "")
