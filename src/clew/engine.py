"""The engine: the facade every front uses. What it stands on is put together by :mod:`clew.opening`."""

from __future__ import annotations

import asyncio
import base64
import binascii
import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET

from clew import ids
from clew.config import secret_values
from clew.errors import (
    InternalError,
    InvalidInput,
    MessageNotFound,
    NotFound,
    SessionBusy,
    SessionNotFound,
    TurnNotFound,
)
from clew.history.accept import plan_accept
from clew.history.views import View, load_messages, load_turn_messages
from clew.live.base import Event, EventType, Status
from clew.store.base import Cursor, Damage, Rebuilt, SearchPage, SearchQuery, SessionQuery, get_session
from clew.store.unit import DeleteSession, InsertSession, PatchSession, Refused, Unit, Write
from clew.transcript.chunk import chunk_dict
from clew.transcript.gate import check_value
from clew.transcript.message import Message, shown
from clew.transcript.session import Model, Session, parse_model

if TYPE_CHECKING:
    # What runs stand on is imported when an engine is opened: importing clew stays quick.
    from clew.compaction.touched import TouchedFile
    from clew.history.compactions import CompactionReport
    from clew.history.report import RequestReport, TurnReport
    from clew.history.rewind import Rewinding, RewindMode, Rewound
    from clew.history.snapshot import SnapshotLayer
    from clew.history.tree import ReflogEntry, TreeView
    from clew.permissions.evaluate import Decision as Verdict
    from clew.runtime.answers import Decision
    from clew.runtime.compact import Compacted
    from clew.runtime.context import ContextReport
    from clew.runtime.desk import OnBusy, Submission
    from clew.runtime.hooks import Hook, HookName
    from clew.runtime.host import Host
    from clew.transcript.rule import Rule

__all__ = ["Engine", "ExportFormat", "SessionList"]

ExportFormat = Literal["json", "jsonl", "md", "html"]


class SessionList(msgspec.Struct, frozen=True):
    """A page of sessions, newest first. ``next_cursor`` is None on the last page."""

    sessions: tuple[Session, ...]
    next_cursor: str | None


class Engine:
    """Sessions and what can be done with them. Made by :func:`clew.open`."""

    def __init__(self, host: Host, snapshots: SnapshotLayer | None = None) -> None:
        from clew.dispatch.dispatcher import Dispatcher
        from clew.history.snapshot import attach
        from clew.runtime.desk import Desk

        self.host = host
        self.store = host.store
        self.config = host.config
        self._clock = host.clock
        self._mint = host.mint
        self._desk = Desk(host)
        self._snapshots = snapshots
        self.dispatcher = Dispatcher(host, self._desk, lambda session_id: self._own(session_id), self._draft)
        self.events = self.dispatcher.events
        self.schedules = self.dispatcher.schedules
        self.webhooks = self.dispatcher.webhooks
        if snapshots is not None:
            attach(host.hooks, snapshots)

    # Sessions

    async def create_session(
        self,
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        workspace_root: str | Path | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Session:
        """A new, empty session.

        ``workspace_root`` must be a folder; it is kept as an absolute path without links. The model is the one given,
        else the agent's, else the default.
        """
        session = await self._draft(
            model=model, agent=agent, workspace_root=workspace_root, title=title, metadata=metadata
        )
        await self._commit(session.id, InsertSession(session))
        self._publish("session_created", session.id)
        self.host.hooks.observe("session_create", session)
        return session

    async def get_session(self, session_id: str) -> Session:
        return await get_session(self.store, self._own(session_id))

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
        page = await self.store.list_sessions(query)
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
        stamp = self._clock.now_ms() if archived else None
        archived_at = UNSET if archived is None else stamp
        return await self._patch(session_id, PatchSession(metadata=merged, drop=drop, archived_at=archived_at))

    async def delete_session(self, session_id: str, *, force: bool = False) -> None:
        """Remove the session for good, with its subagent sessions. Branches of it stay.

        Refused while a run is live, unless ``force``, which aborts it first.
        """
        session = await self.get_session(session_id)
        if self._desk.is_live(session.id) and not force:
            raise SessionBusy("a run is in flight on this session; abort it, or force", session_id=session.id)
        gone = False
        try:
            await self._desk.drop(session.id)
            for child in await self.store.list_children(session.id):
                if child.kind == "subagent":
                    await self.delete_session(child.id, force=force)
            await self._commit(session.id, DeleteSession())
            gone = True
        finally:
            self._desk.forget(session.id, gone=gone)
        await asyncio.to_thread(shutil.rmtree, self.host.spill / session.id, ignore_errors=True)
        self._publish("session_deleted", session.id)
        self.host.hooks.observe("session_delete", session)

    # Messages

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
        return await load_messages(self.store, session_id, view, limit, before)

    async def turn_messages(self, turn_id: str) -> list[Message]:
        """The messages of one turn, also of one that is not on the line any more."""
        return await load_turn_messages(self.store, await self._own_turn(turn_id))

    async def files(self, session_id: str) -> list[TouchedFile]:
        """The files that tool calls on the line read and changed, the one touched last first."""
        from clew.history.files import load_files

        return await load_files(self.store, self._own(session_id))

    # Runs

    async def submit(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        on_busy: OnBusy = "queue",
        attended: bool = True,
    ) -> Submission:
        """Send a prompt. It is durable when this returns; its run goes on by itself.

        On a busy session ``on_busy`` says what happens: ``queue`` it, ``reject`` it (``SessionBusy``), or
        ``interrupt`` what runs. ``message_id`` is the client's own id: sending it again changes nothing.
        """
        if message_id is not None:
            ids.check_client_message_id(message_id)
        return await self._desk.submit(
            self._own(session_id),
            prompt,
            model=model,
            agent=agent,
            message_id=message_id,
            on_busy=on_busy,
            attended=attended,
        )

    async def run(
        self,
        session_id: str,
        prompt: str | Sequence[Mapping[str, Any]],
        *,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        message_id: str | None = None,
        attended: bool = True,
    ) -> AsyncIterator[dict[str, Any]]:
        """Send a prompt and follow its stream: AI SDK chunks as dicts, each already durable.

        Leaving the loop early detaches; the run goes on. Refusals raise before the first chunk.
        """
        submission = await self.submit(
            session_id,
            prompt,
            model=model,
            agent=agent,
            message_id=message_id,
            on_busy="reject",
            attended=attended,
        )
        run = self._desk.run_of(session_id)
        if run is not None and run.user_message_id == submission.message_id:
            async for batch in run.stream.follow(replay=False):
                for chunk in batch:
                    yield chunk_dict(chunk)

    async def attach(self, session_id: str) -> AsyncIterator[dict[str, Any]]:
        """Follow what runs now, from its message's first part; ends at once when nothing does."""
        session = await self.get_session(session_id)
        stream = self.host.live.find_stream(session.id)
        if stream is not None:
            async for batch in stream.follow(replay=True):
                for chunk in batch:
                    yield chunk_dict(chunk)

    async def abort(self, session_id: str) -> bool:
        """Stop what runs on the session, or deny what waits there. True when there was something."""
        session = await self.get_session(session_id)
        return await self._desk.abort(session.id)

    async def continue_turn(self, session_id: str) -> Submission:
        """Go on: an unanswered turn, one at its step limit, one that failed or was aborted, or a paused queue."""
        return await self._desk.continuing.go_on(self._own(session_id))

    async def get_status(self, session_id: str) -> Status:
        session = await self.get_session(session_id)
        return await self._desk.status(session.id)

    def is_idle(self, session_id: str) -> bool:
        """Nothing runs on the session in this process."""
        return not self._desk.is_live(session_id)

    async def watch_status(self, session_id: str) -> AsyncIterator[Status]:
        """The present status, then each change."""
        changes = self.host.live.watch_status(self._own(session_id))
        last = await self.get_status(session_id)
        yield last
        async for status in changes:
            if status != last:
                last = status
                yield status

    async def answer(self, session_id: str, approval_id: str, decision: Decision, reason: str | None = None) -> int:
        """Answer a request for approval; how many of the step are still open."""
        check_value([approval_id, reason], "answer")
        return await self._desk.answers.answer(self._own(session_id), approval_id, decision, reason)

    async def answer_question(self, session_id: str, tool_call_id: str, output: Any) -> int:
        """Answer a question the model asked."""
        check_value([tool_call_id, output], "answer")
        return await self._desk.answers.answer_question(self._own(session_id), tool_call_id, output)

    async def queue(self, session_id: str) -> list[Message]:
        """The messages that wait, in the order they will be fired."""
        waiting = await self._desk.queue.load(self._own(session_id))
        return [shown(entry.message, None) for entry in waiting]

    async def cancel_queued(self, session_id: str, message_id: str) -> None:
        """Take a message out of the queue, by clew's id or the client's own."""
        session = await self.get_session(session_id)
        ids.check_client_message_id(message_id)
        rows = await self.store.find_client_message(session.id, message_id)
        named = [row.id for row in sorted(rows, key=lambda row: "queued_at" not in row.metadata)]
        if not named and await self.store.find_message(session.id, message_id) is None:
            raise MessageNotFound(f"there is no message {message_id}", message_id=message_id)
        await self._desk.queue.cancel(session.id, named[0] if named else message_id)

    # Damage

    async def accept_message(self, session_id: str, message_id: str) -> Message:
        """Accept a damaged message as it is now: it is sealed anew, sent again, and its metadata says so."""
        session = await self.get_session(session_id)
        async with self._desk.lock(session.id):
            if self._desk.is_live(session.id):
                raise SessionBusy("a run is in flight on this session; wait for it, or abort it", session_id=session.id)
            row, unit = await plan_accept(self.store, session.id, message_id, self.host.clock.now_ms())
            await self._desk.commit(unit)
        self._publish("session_updated", session.id)
        return shown(await self.store.find_message(session.id, row.id) or row, None)

    async def losses(self) -> tuple[Damage, ...]:
        """What was acknowledged and is not in the store any more, until somebody has accepted it."""
        return await self.store.losses()

    async def accept_loss(self, loss_id: str) -> None:
        """Accept a loss, by the id it was told with: it is told no more."""
        if not await self.store.accept_loss(loss_id, self.host.clock.now_ms()):
            raise NotFound(f"there is no loss {loss_id} to accept", loss_id=loss_id)

    # Room

    async def compact(self, session_id: str, focus: str | None = None) -> Compacted:
        """Summarise what lies before the newest turns, now. ``focus`` says what matters most.

        Nothing is deleted: what was summarised stays readable. Prompts sent meanwhile are queued.
        """
        check_value(focus, "focus")
        if focus is not None and len(focus) > 2_000:
            raise InvalidInput("a focus is a sentence or two: at most 2,000 characters")
        return await self._desk.upkeep.compact(self._own(session_id), focus)

    async def prune(self, session_id: str) -> Compacted:
        """Show the model stubs in place of older tool outputs. What is stored stays whole."""
        return await self._desk.upkeep.prune(self._own(session_id))

    async def context(self, session_id: str, *, model: str | Model | dict[str, Any] | None = None) -> ContextReport:
        """How large the next request would be, and how large it may be; for the session's model, or another."""
        return await self._desk.upkeep.context(self._own(session_id), model)

    async def compaction(self, session_id: str, message_id: str) -> CompactionReport:
        """What the compaction marked by this message summarised."""
        from clew.history.compactions import load_compaction

        session = await self.get_session(session_id)
        return await load_compaction(self.store, session.id, ids.check_client_message_id(message_id))

    async def turn(self, turn_id: str) -> TurnReport:
        """A turn with its steps: models, usage, timing, digests."""
        from clew.history.report import load_turn

        return await load_turn(self.store, await self._own_turn(turn_id))

    async def request(self, turn_id: str, step: int | None = None) -> RequestReport:
        """What the model was sent at a step, put together again and proven by its digest."""
        from clew.history.report import load_request

        return await load_request(self.store, await self._own_turn(turn_id), step)

    def subscribe(self) -> AsyncIterator[Event]:
        """What happens on this host, from now on."""
        return self.host.live.subscribe()

    def hook(self, name: HookName, hook: Hook) -> None:
        """Add a hook; see the how-to for what each is given and may do."""
        self.host.hooks.add(name, hook)

    async def close(self) -> None:
        """End every run, settled as interrupted. Called when the engine's context is left."""
        from clew.tools.process.program import programs_ended

        await self.dispatcher.close()
        await self._desk.close()
        # A run does not wait for a tool that ignores its signal. The host does: it is gone a moment later.
        await programs_ended()
        await self.host.hooks.drain()
        await self.host.providers.close()

    # Finding

    async def search(
        self, q: str, *, limit: int = 20, cursor: str | None = None, session_id: str | None = None
    ) -> SearchPage:
        """Messages that hold these words, best first: all sessions or one, and what is hidden too.

        Every word must be there, the last one may be unfinished; ``"…"`` is a phrase.
        """
        within = None if session_id is None else (await self.get_session(session_id)).id
        check_value([q, cursor], "search")
        return await self.store.search(SearchQuery(q, limit=limit, cursor=cursor, session_id=within))

    # Coming and going

    async def export(
        self, session_id: str, format: ExportFormat = "json", *, redact: bool = True, hidden: bool = False
    ) -> bytes:
        """A session as a file: ``json`` and ``jsonl`` whole, ``md`` and ``html`` for reading.

        What looks like a key or a password is struck out unless ``redact`` is False. ``hidden`` takes into a page for
        reading what is not in the conversation any more.
        """
        from clew.history.transfer import export_document
        from clew.interop.forms import FORMS, format_document

        if format not in FORMS:
            raise InvalidInput(f"format must be one of {', '.join(FORMS)}, not {format!r}")
        session = await self.get_session(session_id)
        document = await export_document(self.store, session.id, self._clock.now_ms())
        secrets = secret_values(self.config) if redact else ()
        return await asyncio.to_thread(format_document, document, format, redact=redact, secrets=secrets, hidden=hidden)

    async def import_session(self, data: bytes, *, workspace_root: str | Path | None = None) -> Session:
        """A session from a file that clew exported as ``json`` or ``jsonl``; checked like any input, taken whole.

        The folder the file names is not believed: the session works in ``workspace_root``, or in none.
        """
        from clew.history.transfer import import_document
        from clew.interop.parse import parse_document

        workspace = await asyncio.to_thread(_resolved, workspace_root) if workspace_root is not None else None
        return await import_document(self.host, await asyncio.to_thread(parse_document, data), workspace)

    # Care

    async def backup(self, target: str | Path) -> None:
        """A consistent copy of the store, made while it is in use."""
        await self.store.backup(Path(target))

    async def rebuild(self, target: str | Path) -> Rebuilt:
        """Make a new store from the event log alone, and compare it with this one. Needs ``event_log``."""
        return await self.store.rebuild(Path(target))

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
        now = self._clock.now_ms()
        check_value([agent, title, dict(metadata or {})], "session")
        workspace = await asyncio.to_thread(_resolved, workspace_root) if workspace_root is not None else None
        catalog = await asyncio.to_thread(self.host.agents, workspace)
        manifest = catalog.get(agent or self.config.default_agent)
        bag = dict(metadata or {})
        if title is not None:
            bag["title"] = title
        self._check_settings(bag)
        session = Session(
            id=self._mint.session(self.store.capabilities.session_ids),
            agent=manifest.name,
            model=parse_model(model) if model is not None else manifest.model or self.host.providers.default_model(),
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

            policy_for(self.config.compaction, self.config.pruning, metadata["compaction"])

    def _own(self, session_id: str) -> str:
        """The one gate for ids of sessions from outside: their form, and whose they are.

        Every method that takes one passes through here first, and ids of turns by way of their session; a test holds
        them to it. There is one owner today, ``local``, who owns all there is.
        """
        return ids.check_session_id(session_id, self.store.capabilities.session_ids)

    async def _own_turn(self, turn_id: str) -> str:
        """The same for the id of a turn."""
        turn = await self.store.find_turn(ids.check_turn_id(turn_id))
        if turn is None:
            raise TurnNotFound(f"there is no turn {turn_id}", turn_id=turn_id)
        self._own(turn.session_id)
        return turn.id

    async def _patch(self, session_id: str, write: Write) -> Session:
        await self._commit(self._own(session_id), write)
        self._publish("session_updated", session_id)
        return await self.get_session(session_id)

    def _publish(self, kind: EventType, session_id: str) -> None:
        self.host.live.publish(Event(kind, {"session_id": session_id}))

    async def _commit(self, session_id: str, *writes: Write) -> None:
        outcome = await self.store.commit(Unit(session_id, writes, sync="power"))
        if isinstance(outcome, Refused):
            if outcome.reason == "session_not_found":
                raise SessionNotFound(f"there is no session {session_id}", session_id=session_id)
            raise InternalError(f"a unit was refused: {outcome.reason}", session_id=session_id)

    # Going back

    async def rewind(
        self,
        session_id: str,
        message_id: str,
        *,
        mode: RewindMode = "resend",
        text: str | None = None,
        run: bool = False,
        restore_files: bool = False,
        parts: Sequence[Mapping[str, Any]] | None = None,
        model: str | Model | dict[str, Any] | None = None,
        agent: str | None = None,
        client_message_id: str | None = None,
    ) -> Rewound:
        """Go back to a user message. What came after it leaves the conversation and stays stored.

        ``resend`` keeps the message and waits for a new answer; ``edit`` takes it back and hands its text over as a
        draft. With ``run`` the message, or what the edit made of it, is answered at once. ``text`` replaces what the
        message said, ``parts`` all of it; model and agent stay the message's own unless given.
        """
        from clew.history.rewind import Edited

        edited = Edited(text=text, parts=parts, model=model, agent=agent, client_message_id=client_message_id)
        return await self._rewinding().rewind(
            self._own(session_id), message_id, mode=mode, edited=edited, run=run, restore_files=restore_files
        )

    async def unrewind(self, session_id: str) -> Rewound:
        """Undo the newest rewind; ``NewerTurns`` once the conversation went on after it."""
        return await self._rewinding().unrewind(self._own(session_id))

    async def set_head(self, session_id: str, turn_id: str | None) -> Rewound:
        """Go to any turn the conversation has been at; None is its empty beginning."""
        return await self._rewinding().set_head(self._own(session_id), turn_id)

    async def reflog(self, session_id: str) -> list[ReflogEntry]:
        """Every move of the head, newest first."""
        return await self._rewinding().reflog(self._own(session_id))

    async def branch(
        self,
        session_id: str,
        from_message_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        model: str | Model | dict[str, Any] | None = None,
        start_message_id: str | None = None,
    ) -> Session:
        """A new session that starts as a copy of the line of that message, up to and including it.

        ``metadata`` is merged into the copied one; ``start_message_id`` copies only from there.
        """
        from clew.history.branch import Branching

        return await Branching(self.host, self._desk).branch(
            self._own(session_id),
            from_message_id,
            metadata=metadata,
            model=model,
            start_message_id=start_message_id,
        )

    async def fork(self, turn_id: str, *, label: str | None = None) -> Session:
        """A branch at a turn, also one with children; labelled ``fork-…`` unless said otherwise."""
        from clew.history.branch import Branching

        return await Branching(self.host, self._desk).fork(await self._own_turn(turn_id), label=label)

    async def tree(self, session_id: str) -> TreeView:
        """Every turn of the session with its place, and the branches that left it."""
        from clew.history.tree import load_tree_view

        return await load_tree_view(self.store, self._own(session_id))

    # Permissions

    async def permissions(self, session_id: str) -> tuple[Rule, ...]:
        """The session's own rules, in their order. One that no longer reads shows as one that asks about all."""
        from clew.runtime.permit import stored_rules

        return stored_rules((await self.get_session(session_id)).permissions, "session")

    async def set_permissions(self, session_id: str, rules: Sequence[Mapping[str, Any]]) -> tuple[Rule, ...]:
        """Replace the session's own rules. Requests that wait are judged again by the new ones."""
        session = await self.get_session(session_id)
        await self._desk.answers.set_rules(session.id, rules)
        return await self.permissions(session.id)

    async def explain_permission(self, session_id: str, tool: str, target: str) -> Verdict:
        """What would be decided about a call: ``action``, ``rule``, ``scope``, what else was ``considered``."""
        from clew.runtime.explaining import explain_call

        session = await self.get_session(session_id)
        check_value([tool, target], "call")
        return await explain_call(self.host, session, tool, target)

    def _rewinding(self) -> Rewinding:
        from clew.history.rewind import Rewinding

        return Rewinding(self.host, self._desk, self._snapshots)


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
