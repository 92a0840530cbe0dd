"""Transfer: full-text search, and sessions exported and imported as files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

from clew.config import secret_values
from clew.errors import InvalidInput
from clew.interop import ExportFormat
from clew.interop.programs.import_report import Arrival, Program
from clew.long_work import let_go, run_long
from clew.session.api.base import EnginePart
from clew.store.base import SearchPage, SearchQuery
from clew.transcript.metadata import local_place
from clew.transcript.session import Model, Session
from clew.transcript.value_check import check_value

# Imports inside functions: the code for session files takes half as long to load as the rest of clew.

__all__ = ["ExportFormat", "Transfer"]


_ANTHROPIC: Final = Model("anthropic", "claude-sonnet-4-5")


class Transfer(EnginePart):
    """The operations that read whole sessions: search, export and import. A run may continue meanwhile."""

    async def search(
        self,
        q: str,
        *,
        limit: int = 20,
        cursor: str | None = None,
        session_id: str | None = None,
        wait: bool = False,
    ) -> SearchPage:
        """Return messages that contain these words, best match first: of all sessions or one, including hidden ones.

        Texts, reasoning, tool inputs and outputs are searched. Every word must occur, the last one may be incomplete;
        ``"…"`` is a phrase. The first search creates the index, which later ones update. While much is not indexed yet,
        as at the first search of a large store, the result is not ``complete``, unless called with ``wait``.
        """
        within = None if session_id is None else (await self._get_session(session_id)).id
        check_value([q, cursor], "search")
        return await self._store.search(
            SearchQuery(q, limit=limit, cursor=cursor, session_id=within, wait=wait, owner=self.owner)
        )

    async def export(
        self, session_id: str, format: ExportFormat = "json", *, redact: bool = True, hidden: bool = False
    ) -> bytes:
        """Return a session as a file: ``json`` and ``jsonl`` complete, ``md`` and ``html`` for reading, ``ai-sdk`` and
        ``openai`` as messages for other programs, ``claude-code`` and ``pi`` in those programs' own formats,
        ``canonical-json``, ``canonical-jsonl`` and ``csv`` as rows of the shared tables, ``atif`` as a trajectory.

        Likely keys and passwords are redacted unless ``redact`` is False. ``hidden`` adds messages that are no longer
        in the conversation to a page for reading.
        """
        from clew.interop.formats import FORMATS, format_session
        from clew.session.history.transfer import export_session

        if format not in FORMATS:
            raise InvalidInput(f"format must be one of {', '.join(FORMATS)}, not {format!r}")
        session = await self._get_session(session_id)
        secrets = secret_values(self._host.config) if redact else ()
        portable = await export_session(self._store, session.id, self._host.clock.now_ms())
        signers = self._signers(format)
        file = await run_long(
            format_session, portable, format, redact=redact, secrets=secrets, hidden=hidden, signers=signers
        )
        let_go(portable.messages, portable.turns, portable.steps)
        return file

    def _signers(self, format: ExportFormat) -> tuple[str, ...]:
        """Return the providers whose signed reasoning Anthropic's API accepts."""
        try:
            others = self._host.providers.info(_ANTHROPIC).seals if format == "claude-code" else ()
        except InvalidInput:
            others = ()
        return (_ANTHROPIC.provider_id, *others)

    async def import_session(self, data: bytes, *, workspace_root: str | Path | None = None) -> Session:
        """Import a session from a file that clew exported as ``json``, ``jsonl``, ``canonical-json`` or
        ``canonical-jsonl``, which its content tells; checked like any input, and atomic.

        Ids are kept if they are free here, else all are new. The folder named in the file is ignored: the session works
        in ``workspace_root``, or in none. Rules are not imported; calls that were open are aborted. Imports of one
        owner run one after another, since each needs up to four times its file in memory.
        """
        from clew.interop.session_file import parse_session
        from clew.session.history import transfer

        workspace = await self._resolve_workspace(workspace_root)
        async with self._import_lock():
            reading = run_long(parse_session, data)
            del data  # replaced by the parsed content
            return await transfer.import_session(self._host, await reading, workspace, self.owner)

    async def import_from(self, program: Program, data: bytes, *, workspace_root: str | Path | None = None) -> Arrival:
        """Import a session of another program, from the bytes of its file; ``opencode``'s in its export format.

        Importing it again changes nothing; one that grew since gets its new turns, unless it was continued here.
        Content that clew cannot represent is stored with it and reported. The folder named in the file is ignored.
        """
        from clew.interop.programs.import_session import ImportTarget
        from clew.interop.programs.readers import read_foreign
        from clew.session.history.foreign_import import write_foreign
        from clew.session.prompt.turn_config import find_default_model

        workspace = await self._resolve_workspace(workspace_root)
        catalog = await asyncio.to_thread(self._host.agents, workspace, self.owner)
        agent, model = (
            catalog.get(self._host.choices.default_agent).name,
            await find_default_model(self._host, workspace, self.owner),
        )
        able = self._store.capabilities
        required = local_place(None if workspace is None else str(workspace)) if able.required_metadata else {}
        target = ImportTarget(able.session_ids, self.owner, agent, model, required)
        async with self._import_lock():
            reading = run_long(read_foreign, program, [data])
            del data  # replaced by the parsed content
            return await write_foreign(self._host, self._runtime.sessions, await reading, target, workspace)

    def _import_lock(self) -> asyncio.Lock:
        return self._import_locks.setdefault(self.owner, asyncio.Lock())
