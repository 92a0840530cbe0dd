"""Sessions: created, listed, changed and deleted, with their messages and files.

Search, export and import are in ``transfer``, rules in ``permissions``, head moves in ``history``.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from clew import ids
from clew.convert import convert_json
from clew.errors import InvalidInput, SessionBusy
from clew.session.api.base import EnginePart, check_limit, without_links
from clew.session.history.check import plan_accept
from clew.session.history.views import View, load_messages
from clew.store.base import Cursor, SessionQuery
from clew.store.deletion import delete_rows
from clew.store.unit import AliasIsFree, BeginDeletion, Guard, InsertSession, PatchSession, Unit, Write
from clew.transcript.message import Message, shown_message
from clew.transcript.metadata import (
    MODE_KEY,
    NAMING_KEY,
    PICKED_KEY,
    PINNED_KEY,
    check_metadata,
    check_names,
    local_place,
    merge,
)
from clew.transcript.rule import Mode, check_mode
from clew.transcript.session import Model, Session
from clew.transcript.value_check import check_value

# Imports inside functions: compaction code is only loaded when needed, so importing clew stays fast.
if TYPE_CHECKING:
    from clew.session.history.views import FileList

__all__ = ["SessionList", "Sessions"]


class SessionList(msgspec.Struct, frozen=True):
    """A page of sessions, newest first. ``next_cursor`` is None on the last page. ``unsettled`` are those with
    something open (a turn, a call, a queued prompt), or whose newest turn ``failed``; None if that is not known.

    Public under this name. Over HTTP the same page is a ``SessionPage``, and a ``SessionList`` is one without a cursor.
    """

    sessions: tuple[Session, ...]
    next_cursor: str | None
    unsettled: frozenset[str] | None = None
    failed: frozenset[str] | None = None


class Sessions(EnginePart):
    """The operations on sessions, most of them also available during a run.

    Deleting a session and accepting a message need it idle: they are refused, or abort the run if requested.
    """

    async def create_session(
        self,
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        workspace_root: str | Path | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        mode: Mode | None = None,
        alias: str | None = None,
    ) -> Session:
        """Create an empty session.

        ``workspace_root`` must be a folder; it is stored as an absolute path without links. The model is the one given,
        else the agent's, else the workspace's (``.clew/config.toml``), else the default. A variant given here applies
        to the first turn. ``system_prompt`` is added to the prompt of every turn. ``alias`` is the caller's own name
        for it, accepted wherever an id is: 1 to 128 printable ASCII characters that do not begin with ``ses_``. A
        ``json:`` store needs ``workerId`` and ``workspaceId`` in ``metadata``, which has at most 64 KiB as JSON.
        """
        if system_prompt is not None:
            metadata = {**(metadata or {}), "system_prompt": system_prompt}
        if mode is not None:
            metadata = {**(metadata or {}), MODE_KEY: mode}
        self._check_required(metadata or {}, self._store.capabilities.required_metadata)
        session = await self._draft(
            model=model, agent=agent, workspace_root=workspace_root, title=title, metadata=metadata, owner=self.owner
        )
        guards: tuple[Guard, ...] = ()
        if alias is not None:
            session = replace(session, alias=ids.check_alias(alias, self._store.capabilities.session_ids))
            guards = (AliasIsFree(alias, self.owner),)
        await self._runtime.sessions.commit(Unit(session.id, (InsertSession(session),), guards, sync="power"))
        self._runtime.sessions.publish("session_created", session.id)
        self._host.hooks.observe("session_create", session, session)
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
        pinned: bool = False,
    ) -> SessionList:
        """Return sessions, newest first: by ``updated_at``, then by id.

        ``limit`` is 1 to 200; ``next_cursor`` of the result is the ``cursor`` of the next page. ``q`` is searched in
        titles, without regard to case. ``workspace`` may be any path of the folder, which need not exist any more.
        Archived, ephemeral and subagent sessions are left out unless requested; with ``pinned``, all that are not
        pinned. No message is read.
        """
        if not 1 <= limit <= 200:
            raise InvalidInput(f"limit must be from 1 to 200, not {limit}")
        if kind not in ("chat", "subagent", "any"):
            raise InvalidInput(f"kind must be chat, subagent or any, not {kind!r}")
        parent = None if parent is None else await self._resolve_session(parent)
        folder = None if workspace is None else str(workspace)
        check_value([agent, folder, q], "filter")
        folder = await asyncio.to_thread(without_links, folder) if folder else folder
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
            pinned=pinned,
            owner=self.owner,
        )
        page = await self._store.list_shown(query)
        return SessionList(page.sessions, _format_cursor(page.next), page.unsettled, page.failed)

    async def rename_session(self, session_id: str, title: str) -> Session:
        """Set the session's title, of at most 500 characters; an empty one removes it. Its position in the list stays.

        A session without a title gets the first words of its first message, and after its first turn a title from the
        provider's cheap model, which is tried again after the next two turns. A title that a person set is never
        replaced.
        """
        return await self.patch_session(session_id, title=title)

    async def archive_session(self, session_id: str, *, archived: bool = True) -> Session:
        """Archive a session, or restore it: hide it from the list without deleting it."""
        return await self.patch_session(session_id, archived=archived)

    async def patch_session(
        self,
        session_id: str,
        *,
        title: str | None = None,
        archived: bool | None = None,
        metadata: Mapping[str, Any] | None = None,
        model: str | Model | dict[str, Any] | None = None,
        mode: Mode | None = None,
        pinned: bool | None = None,
    ) -> Session:
        """Change the given values, in one unit. ``metadata`` is merged key by key; a key set to None is removed.

        ``model`` applies from the next turn that names none, including queued ones; its variant to that turn only.
        ``mode`` applies from the next tool call, and pending requests are decided again. A ``pinned`` session is
        listed first in the web UI.
        """
        given = metadata
        if pinned is not None:
            metadata = {**(metadata or {}), PINNED_KEY: pinned or None}
        if mode is not None:
            metadata = {**(metadata or {}), MODE_KEY: mode}
        if title is None and archived is None and metadata is None and model is None:
            return await self.get_session(session_id)
        check_names({"title": title})
        check_metadata(metadata)
        check_value([title, msgspec.to_builtins(model)], "session")
        picked = self._host.providers.parse(model) if model is not None else None
        merged = {key: value for key, value in (metadata or {}).items() if value is not None}
        drop = tuple(key for key, value in (metadata or {}).items() if value is None)
        check_names(merged)
        required = self._store.capabilities.required_metadata
        self._check_required(merged, [key for key in required if key in (metadata or {})])
        self._check_settings(merged)
        if title is not None or "title" in (metadata or {}):
            # A title set by the user: clew does not replace it.
            drop = (*drop, NAMING_KEY)
        if title:
            merged["title"] = title
        elif title == "":
            drop = (*drop, "title")
        now, session_id = self._host.clock.now_ms(), await self._resolve_session(session_id)
        archived_at = UNSET if archived is None else now if archived else None
        if picked is not None:
            merged[PICKED_KEY] = max(now, await self._store.newest_message_at(session_id))
        if given:
            check_metadata(merge((await self._get_session(session_id)).metadata, merged, drop))
        patch = PatchSession(metadata=merged, drop=drop, archived_at=archived_at, model=picked)
        await self._commit(session_id, patch)
        self._runtime.sessions.publish("session_updated", session_id)
        if MODE_KEY in (metadata or {}):
            await self._runtime.answers.judge_again(session_id)
        return await self.get_session(session_id)

    async def delete_session(self, session_id: str, *, force: bool = False) -> None:
        """Delete the session permanently, with its subagent sessions. Branches of it stay.

        Its messages, turns, events, the schedules and webhooks that name it, and its folder of long outputs are
        deleted, with the files and system prompts that no other session uses. Refused while a run is active, unless
        ``force``, which aborts it first.
        """
        session = await self._get_session(session_id)
        if not force and await self._is_live(session.id):
            raise SessionBusy("a run is in flight on this session; abort it, or force", session_id=session.id)
        is_deleted = False
        try:
            await self._runtime.begin_deletion(session.id)
            for child in await self._store.list_children(session.id):
                if child.kind == "subagent":
                    await self.delete_session(child.id, force=force)
            await self._commit(
                session.id, *await self._runtime.event_replies.plan_deletion(session.id), BeginDeletion()
            )
            is_deleted = True
            await delete_rows(self._store, session.id)
        finally:
            self._runtime.end_deletion(session.id, is_deleted=is_deleted)
        await asyncio.to_thread(shutil.rmtree, self._host.spill / session.id, ignore_errors=True)
        # The owner can no longer be looked up.
        owned = {} if session.owner is None else {"owner": session.owner}
        self._runtime.sessions.publish("session_deleted", session.id, **owned)
        self._host.hooks.observe("session_delete", session, session)

    async def _is_live(self, session_id: str) -> bool:
        from clew.session.acquire.prepare import is_live_anywhere

        return await is_live_anywhere(self._host, self._runtime.sessions, session_id)

    # Content

    async def messages(
        self, session_id: str, *, view: View = "visible", limit: int | None = None, before: str | None = None
    ) -> list[Message]:
        """Return the messages of a session, ready for ``useChat``.

        ``visible``: the current line, without what a compaction summarised. ``model``: what the next call would send,
        the summary first, pruned outputs as stubs. ``all``: every row, by time and id. ``limit`` (1 to 500) takes that
        many from the end, ``before`` pages back from a message. A row that cannot be read is a part of type
        ``data-damaged``.
        """
        session_id = await self._resolve_session(session_id)
        if view not in ("visible", "all", "model"):
            raise InvalidInput(f"view must be visible, all or model, not {view!r}")
        check_limit(limit)
        if before is not None:
            ids.check_named_message_id(before)
        return await load_messages(self._store, session_id, view, limit, before)

    async def files(self, session_id: str, *, limit: int | None = None, cursor: str | None = None) -> FileList:
        """Return the files that tool calls on the line read and changed, the most recently touched first.

        With a ``limit``, only those of that many newest turns; the ``next_cursor`` leads to the turns before them.
        Files that a shell command touched are not known.
        """
        from clew.session.history.views import load_files

        check_limit(limit)
        through = None if cursor is None else ids.check_turn_id(cursor)
        return await load_files(self._store, await self._get_session(session_id), limit, through)

    async def accept_message(self, session_id: str, message_id: str) -> Message:
        """Accept a damaged message as it is now: it is sealed and sent again, and its metadata records that."""
        session = await self._get_session(session_id)
        async with self._runtime.sessions.lock(session.id):
            if await self._is_live(session.id):
                raise SessionBusy("a run is in flight on this session; wait for it, or abort it", session_id=session.id)
            row, unit = await plan_accept(self._store, session.id, message_id, self._host.clock.now_ms())
            await self._runtime.sessions.commit(unit)
        self._runtime.sessions.publish("session_updated", session.id)
        return shown_message(await self._store.find_message(session.id, row.id) or row, None)

    # Internals

    async def _draft(
        self,
        *,
        model: str | Model | dict[str, Any] | None,
        agent: str | None,
        workspace_root: str | Path | None,
        title: str | None,
        metadata: Mapping[str, Any] | None,
        owner: str | None,
    ) -> Session:
        """Return a session as it would be stored."""
        from clew.session.prompt.turn_config import find_default_model

        now = self._host.clock.now_ms()
        check_value([agent, title], "session")
        check_metadata(metadata)
        workspace = await self._resolve_workspace(workspace_root)
        catalog = await asyncio.to_thread(self._host.agents, workspace, owner)
        manifest = catalog.get(agent or self._host.choices.default_agent)
        values = dict(metadata or {})
        if title is not None:
            values["title"] = title
        if self._store.capabilities.required_metadata:
            # A session created for an event has no client to provide them.
            values = {**local_place(str(workspace) if workspace is not None else None), **values}
        check_metadata(values)
        self._check_settings(values)
        named = model if model is not None else manifest.model
        chosen = (
            self._host.providers.parse(named)
            if named is not None
            else await find_default_model(self._host, workspace, owner)
        )
        session = Session(
            id=self._host.mint.session(self._store.capabilities.session_ids),
            agent=manifest.name,
            model=chosen,
            workspace_root=str(workspace) if workspace is not None else None,
            metadata=values,
            created_at=now,
            updated_at=now,
            owner=owner,
        )
        check_value(msgspec.to_builtins(session.model), "model")
        check_names(values)
        return session

    def _check_required(self, metadata: Mapping[str, Any], keys: Iterable[str]) -> None:
        """Refuse a session without the metadata that other programs of the store require; it is not made up."""
        if missing := [key for key in keys if not (isinstance(metadata.get(key), str) and metadata[key])]:
            kind, names = self._store.url.partition(":")[0], " and ".join(missing)
            raise InvalidInput(
                f"a {kind}: store needs {names} in the metadata of a session, as text: which worker has it and which "
                'workspace it belongs to, for example {"workerId": "local", "workspaceId": "my-project"}'
            )

    def _check_settings(self, metadata: Mapping[str, Any]) -> None:
        """Refuse invalid settings of a session while the client can still fix them."""
        check_mode(metadata.get(MODE_KEY, "ask"))
        if metadata.get("compaction") is not None:
            from clew.compaction.policy import policy_for

            policy_for(self._host.config.compaction, self._host.config.pruning, metadata["compaction"])

    async def _commit(self, session_id: str, *writes: Write) -> None:
        await self._runtime.sessions.commit(Unit(session_id, writes, sync="power"))


def _format_cursor(cursor: Cursor | None) -> str | None:
    return None if cursor is None else base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode().rstrip("=")


def _parse_cursor(text: str | None) -> Cursor | None:
    if text is None:
        return None
    try:
        padded = text.encode("ascii") + b"=" * (-len(text) % 4)
        cursor = convert_json(base64.b64decode(padded, altchars=b"-_", validate=True), Cursor)
    except (binascii.Error, UnicodeEncodeError, ValueError) as error:
        raise InvalidInput("this cursor was not made by clew; start again without one") from error
    check_value([cursor.updated_at, cursor.id], "cursor")
    return cursor
