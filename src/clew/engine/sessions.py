"""Sessions: made, found, changed, removed, and carried out and in as files; what is in them, and what they allow."""

from __future__ import annotations

import asyncio
import base64
import binascii
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET

from clew import ids
from clew.config import secret_values
from clew.engine.base import EnginePart
from clew.errors import InternalError, InvalidInput, SessionBusy, SessionNotFound
from clew.history.repair import plan_accept
from clew.history.views import View, load_messages
from clew.store.base import Cursor, SearchPage, SearchQuery, SessionQuery
from clew.store.unit import DeleteSession, InsertSession, PatchSession, Refused, Unit, Write
from clew.transcript.gate import check_value
from clew.transcript.message import Message, shown_message
from clew.transcript.session import Model, Session, parse_model

if TYPE_CHECKING:
    from clew.compaction.files import TouchedFile
    from clew.permissions.explain import Explanation
    from clew.transcript.rule import Rule

__all__ = ["ExportFormat", "SessionList", "Sessions"]

ExportFormat = Literal["json", "jsonl", "md", "html"]


class SessionList(msgspec.Struct, frozen=True):
    """A page of sessions, newest first. ``next_cursor`` is None on the last page."""

    sessions: tuple[Session, ...]
    next_cursor: str | None


class Sessions(EnginePart):
    """What can be done with sessions while nothing runs on them."""

    async def create_session(
        self,
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        workspace_root: str | Path | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
    ) -> Session:
        """A new, empty session.

        ``workspace_root`` must be a folder; it is kept as an absolute path without links. The model is the one given,
        else the agent's, else the default.
        """
        if system_prompt is not None:
            metadata = {**(metadata or {}), "system_prompt": system_prompt}
        session = await self._draft(
            model=model, agent=agent, workspace_root=workspace_root, title=title, metadata=metadata
        )
        await self._commit(session.id, InsertSession(session))
        self._publish("session_created", session.id)
        self._host.hooks.observe("session_create", session)
        return session

    async def list_sessions(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        agent: str | None = None,
        workspace: str | Path | None = None,
        parent: str | None = None,
        q: str | None = None,
        kind: Literal["chat", "subagent", "any"] = "chat",
        archived: bool = False,
        ephemeral: bool = False,
    ) -> SessionList:
        """Sessions, newest first. Archived, ephemeral and subagent sessions are left out unless asked for.

        ``workspace`` may be any name of the folder; it need not be there any more.
        """
        if not 1 <= limit <= 200:
            raise InvalidInput(f"limit must be from 1 to 200, not {limit}")
        if kind not in ("chat", "subagent", "any"):
            raise InvalidInput(f"kind must be chat, subagent or any, not {kind!r}")
        parent = None if parent is None else self._own(parent)
        folder = None if workspace is None else str(workspace)
        check_value([agent, folder, q], "filter")
        folder = await asyncio.to_thread(_without_links, folder) if folder else folder
        query = SessionQuery(
            limit=limit,
            cursor=_parse_cursor(cursor),
            agent=agent,
            workspace=folder,
            parent=parent,
            title=q,
            kind=kind,
            archived=archived,
            ephemeral=ephemeral,
        )
        page = await self._store.list_sessions(query)
        return SessionList(page.sessions, _format_cursor(page.next))

    async def rename_session(self, session_id: str, title: str) -> Session:
        """Give the session a title; an empty one takes it away. Its place in the list stays."""
        return await self.patch_session(session_id, title=title)

    async def archive_session(self, session_id: str, *, archived: bool = True) -> Session:
        """Put the session out of the list, or back into it. Nothing is removed."""
        return await self.patch_session(session_id, archived=archived)

    async def patch_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """Change what is given, in one unit. ``metadata`` is merged key by key; a key set to None is removed."""
        if title is None and archived is None and metadata is None:
            return await self.get_session(session_id)
        _check_title(title)
        check_value([title, metadata], "session")
        merged = {key: value for key, value in (metadata or {}).items() if value is not None}
        drop = tuple(key for key, value in (metadata or {}).items() if value is None)
        _check_title(merged.get("title"))
        self._check_settings(merged)
        if title:
            merged["title"] = title
        elif title == "":
            drop = (*drop, "title")
        stamp = self._host.clock.now_ms() if archived else None
        archived_at = UNSET if archived is None else stamp
        patch = PatchSession(metadata=merged, drop=drop, archived_at=archived_at)
        await self._commit(self._own(session_id), patch)
        self._publish("session_updated", session_id)
        return await self.get_session(session_id)

    async def delete_session(self, session_id: str, *, force: bool = False) -> None:
        """Remove the session for good, with its subagent sessions. Branches of it stay.

        Refused while a run is live, unless ``force``, which aborts it first.
        """
        session = await self.get_session(session_id)
        if self._runtime.sessions.is_live(session.id) and not force:
            raise SessionBusy("a run is in flight on this session; abort it, or force", session_id=session.id)
        gone = False
        try:
            await self._runtime.begin_deletion(session.id)
            for child in await self._store.list_children(session.id):
                if child.kind == "subagent":
                    await self.delete_session(child.id, force=force)
            await self._commit(session.id, DeleteSession())
            gone = True
        finally:
            self._runtime.end_deletion(session.id, gone=gone)
        await asyncio.to_thread(shutil.rmtree, self._host.spill / session.id, ignore_errors=True)
        self._publish("session_deleted", session.id)
        self._host.hooks.observe("session_delete", session)

    # What is in one

    async def messages(
        self,
        session_id: str,
        *,
        view: View = "visible",
        limit: int | None = None,
        before: str | None = None,
    ) -> list[Message]:
        """The messages of a session, ready for ``useChat``.

        ``visible``: the line as it stands, what a compaction summarised left out. ``model``: what the next call
        would send, the summary first. ``all``: every row. ``limit`` takes that many from the end, ``before`` pages
        back from a message.
        """
        session_id = self._own(session_id)
        if view not in ("visible", "all", "model"):
            raise InvalidInput(f"view must be visible, all or model, not {view!r}")
        if limit is not None and not 1 <= limit <= 500:
            raise InvalidInput(f"limit must be from 1 to 500, not {limit}")
        if before is not None:
            ids.check_client_message_id(before)
        return await load_messages(self._store, session_id, view, limit, before)

    async def files(self, session_id: str) -> list[TouchedFile]:
        """The files that tool calls on the line read and changed, the one touched last first."""
        from clew.history.files import load_files

        return await load_files(self._store, self._own(session_id))

    async def accept_message(self, session_id: str, message_id: str) -> Message:
        """Accept a damaged message as it is now: it is sealed anew, sent again, and its metadata says so."""
        session = await self.get_session(session_id)
        async with self._runtime.sessions.lock(session.id):
            if self._runtime.sessions.is_live(session.id):
                raise SessionBusy("a run is in flight on this session; wait for it, or abort it", session_id=session.id)
            row, unit = await plan_accept(self._store, session.id, message_id, self._host.clock.now_ms())
            await self._runtime.sessions.commit(unit)
        self._publish("session_updated", session.id)
        return shown_message(await self._store.find_message(session.id, row.id) or row, None)

    async def search(
        self, q: str, *, limit: int = 20, cursor: str | None = None, session_id: str | None = None
    ) -> SearchPage:
        """Messages that hold these words, best first: all sessions or one, and what is hidden too.

        Every word must be there, the last one may be unfinished; ``"…"`` is a phrase.
        """
        within = None if session_id is None else (await self.get_session(session_id)).id
        check_value([q, cursor], "search")
        return await self._store.search(SearchQuery(q, limit=limit, cursor=cursor, session_id=within))

    # Out and in as files

    async def export(
        self, session_id: str, format: ExportFormat = "json", *, redact: bool = True, hidden: bool = False
    ) -> bytes:
        """A session as a file: ``json`` and ``jsonl`` whole, ``md`` and ``html`` for reading.

        What looks like a key or a password is struck out unless ``redact`` is False. ``hidden`` takes into a page for
        reading what is not in the conversation any more.
        """
        from clew.history.transfer import export_session
        from clew.interop.formats import FORMATS, format_session

        if format not in FORMATS:
            raise InvalidInput(f"format must be one of {', '.join(FORMATS)}, not {format!r}")
        session = await self.get_session(session_id)
        portable = await export_session(self._store, session.id, self._host.clock.now_ms())
        secrets = secret_values(self._host.config) if redact else ()
        return await asyncio.to_thread(format_session, portable, format, redact=redact, secrets=secrets, hidden=hidden)

    async def import_session(self, data: bytes, *, workspace_root: str | Path | None = None) -> Session:
        """A session from a file that clew exported as ``json`` or ``jsonl``; checked like any input, taken whole.

        The folder the file names is not believed: the session works in ``workspace_root``, or in none.
        """
        from clew.history import transfer
        from clew.interop.session_file import parse_session

        workspace = await asyncio.to_thread(_resolved, workspace_root) if workspace_root is not None else None
        return await transfer.import_session(self._host, await asyncio.to_thread(parse_session, data), workspace)

    # Permissions

    async def permissions(self, session_id: str) -> tuple[Rule, ...]:
        """The session's own rules, in their order. One that no longer reads shows as one that asks about all."""
        from clew.runtime.permit import stored_rules

        return stored_rules((await self.get_session(session_id)).permissions, "session")

    async def set_permissions(self, session_id: str, rules: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
        """Replace the session's own rules. Requests that wait are judged again by the new ones."""
        session = await self.get_session(session_id)
        await self._runtime.answers.set_rules(session.id, rules)
        return await self.permissions(session.id)

    async def explain_permission(self, session_id: str, tool: str, target: str = "") -> Explanation:
        """What would be decided about a call: ``action``, ``rule``, ``scope``, what else was ``considered``."""
        from clew.permissions.explain import explain
        from clew.runtime.explain import explain_call

        session = await self.get_session(session_id)
        check_value([tool, target], "call")
        return explain(await explain_call(self._host, session, tool, target))

    # Inside

    async def _draft(
        self,
        *,
        model: str | Model | dict[str, Any] | None,
        agent: str | None,
        workspace_root: str | Path | None,
        title: str | None,
        metadata: Mapping[str, Any] | None,
    ) -> Session:
        """A session as it would be stored."""
        now = self._host.clock.now_ms()
        check_value([agent, title, dict(metadata or {})], "session")
        workspace = await asyncio.to_thread(_resolved, workspace_root) if workspace_root is not None else None
        catalog = await asyncio.to_thread(self._host.agents, workspace)
        manifest = catalog.get(agent or self._host.config.default_agent)
        bag = dict(metadata or {})
        if title is not None:
            bag["title"] = title
        self._check_settings(bag)
        session = Session(
            id=self._host.mint.session(self._store.capabilities.session_ids),
            agent=manifest.name,
            model=parse_model(model) if model is not None else manifest.model or self._host.providers.default_model(),
            workspace_root=str(workspace) if workspace is not None else None,
            metadata=bag,
            created_at=now,
            updated_at=now,
        )
        check_value(msgspec.to_builtins(session.model), "model")
        _check_title(bag.get("title"))
        return session

    def _check_settings(self, metadata: Mapping[str, Any]) -> None:
        """A session's own compaction settings are refused here, where somebody can still mend them."""
        if metadata.get("compaction") is not None:
            from clew.compaction.policy import policy_for

            policy_for(self._host.config.compaction, self._host.config.pruning, metadata["compaction"])

    async def _commit(self, session_id: str, write: Write) -> None:
        outcome = await self._store.commit(Unit(session_id, (write,), sync="power"))
        if isinstance(outcome, Refused):
            if outcome.reason == "session_not_found":
                raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
            raise InternalError(f"a unit was refused: {outcome.reason}", session_id=session_id)


def _resolved(folder: str | Path) -> Path:
    check_value(str(folder), "workspace_root")
    try:
        path = Path(folder).expanduser().resolve()
        is_folder = path.is_dir() and folder != ""
    except (OSError, RuntimeError) as error:
        # A name that is too long, a loop of links, the home of a user who is not there.
        raise InvalidInput(f"the workspace {str(folder)[:200]!r} is not a folder") from error
    if not is_folder:
        raise InvalidInput(f"the workspace {str(folder)[:200]!r} is not a folder")
    return path


def _without_links(folder: str) -> str:
    """A folder's name as sessions keep it. What cannot be one is nobody's workspace, and finds nothing."""
    try:
        return str(Path(folder).expanduser().resolve())
    except (OSError, RuntimeError):
        return folder


def _check_title(title: object) -> None:
    if title is not None and not (isinstance(title, str) and len(title) <= 500):
        raise InvalidInput("a title is text of at most 500 characters")


def _format_cursor(cursor: Cursor | None) -> str | None:
    return None if cursor is None else base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _parse_cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursor = msgspec.json.decode(base64.b64decode(padded, altchars=b"-_", validate=True), type=Cursor)
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise InvalidInput("this cursor was not made by clew; start again without one") from error
    check_value([cursor.updated_at, cursor.id], "cursor")
    return cursor
