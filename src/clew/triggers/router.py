"""The router: the single entry point for everything that does not come from a user.

An event is accepted once, identified by its source and source id. It is routed to its session, which is created if
necessary; session, message and ledger entry are stored in one unit. Events for a busy session are queued, so many
concurrent ones share one session and run one after another.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from clew.errors import DuplicateEvent, InvalidInput, RoutingConflict, SessionNotFound
from clew.session.acquire.live_sessions import RouteTaken
from clew.session.acquire.loaded_session import LoadedSession, load_session_state
from clew.session.acquire.prepare import find_obstacle
from clew.session.host import Host
from clew.session.prompt.admission import admit, user_row
from clew.session.prompt.prompts import UnitFor
from clew.session.prompt.submission import Submission
from clew.session.prompt.turn_config import LastEnvironment
from clew.session.runtime import Runtime
from clew.store.base import get_session
from clew.store.unit import (
    STORE_WIDE,
    AddEvent,
    DigestIsNew,
    EventIsNew,
    Guard,
    InsertSession,
    Refused,
    RouteIsFree,
    Unit,
    Write,
)
from clew.transcript.message import MessageRow
from clew.transcript.session import Session
from clew.triggers.values.ledger import LedgerEvent, digest_event
from clew.triggers.values.routing import RouteKind, Routing

__all__ = ["MAX_CONTENT", "Draft", "Duplicate", "Inbound", "Received", "Router", "Scope", "Trigger", "safe_headers"]


_ALLOWED: Final = re.compile(r"content-type|user-agent|x-[a-z0-9-]{1,60}")
# Headers with credentials or network addresses are never stored.
_SECRET: Final = re.compile(
    r"sign|token|key|secret|auth|cookie|session|pass|pwd|credential|forwarded|-ip\b"
    r"|jwt|assertion|bearer|hmac|digest|cert|csrf|xsrf|principal|ur[il]\b"
)
_MAX_HEADERS: Final = 20
_MAX_VALUE_CHARS: Final = 200


class Trigger(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The trigger of a turn and its time. Stored in the metadata of its user message as ``trigger``."""

    source: str
    fired_at: int
    schedule_id: str | None = None
    delivery_id: str | None = None
    headers: dict[str, str] | None = None
    auth_subject: str | None = None

    def metadata(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value


def safe_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers that describe a request, without any that could contain a secret."""
    safe: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if _ALLOWED.fullmatch(name) and not _SECRET.search(name) and value.isprintable() and len(safe) < _MAX_HEADERS:
            safe[name] = value[:_MAX_VALUE_CHARS]
    return safe


MAX_CONTENT: Final = 1024 * 1024
"""Bytes of text and payload of one event. The creator of an :class:`Inbound` has checked its content."""

Draft = Callable[..., Awaitable[Session]]
"""Returns a session as ``create_session`` would make it, without storing it."""


class Scope(NamedTuple):
    """The owner on whose behalf events arrive, and the engine's functions to resolve the sessions and turns they name.

    ``owner`` None has access to everything.
    """

    owner: str | None
    resolve_session: Callable[[str], Awaitable[str]]
    resolve_turn: Callable[[str], Awaitable[str]]
    draft: Draft


class Inbound(msgspec.Struct, frozen=True, kw_only=True):
    """An incoming event. ``content`` decides whether it is a repetition; ``tags`` are metadata of a session created for
    it, which belongs to ``owner``. If ``source_id`` cannot be trusted, ``digest`` identifies the event: one with the
    digest of another event of the last ``distinct_ms`` is its duplicate."""

    source: str
    source_id: str
    trigger: Trigger
    content: dict[str, Any]
    parts: tuple[dict[str, Any], ...]
    routing: Routing
    type: str | None = None
    tags: dict[str, Any] = msgspec.field(default_factory=dict)
    owner: str | None = None
    digest: str | None = None
    distinct_ms: int = 0


class Received(msgspec.Struct, frozen=True):
    """The answer to every delivery of the same event."""

    event_id: str
    session_id: str
    message_id: str


class Duplicate(Received, frozen=True):
    """The answer to a delivery that repeats an earlier one under a different id: the ids of the first."""

    duplicate: Literal[True] = True


class Router:
    """The receiver of events. ``receive`` is safe to call concurrently."""

    def __init__(self, host: Host, runtime: Runtime, scope: Scope) -> None:
        self._host = host
        self._runtime = runtime
        self._scope = scope
        # A lock exists only while a task holds or awaits it.
        self._locks: WeakValueDictionary[tuple[str, ...], asyncio.Lock] = WeakValueDictionary()

    async def receive(
        self, inbound: Inbound, also: Sequence[Write] = (), guards: Sequence[Guard] = ()
    ) -> tuple[Received, bool]:
        """Accept an event; return whether it is new. Only then are ``also`` and ``guards`` part of its unit."""
        async with self._lock("event", inbound.source, inbound.source_id):
            known = await self._find_known(inbound)
            if known is not None:
                return known, False
            try:
                return await self._accept(inbound, also, guards), True
            except DuplicateEvent:
                # Another task or process accepted it concurrently.
                known = await self._find_known(inbound)
                if known is None:
                    raise
                return known, False

    async def _find_known(self, inbound: Inbound) -> Received | None:
        """Return the answer to an event that was received before or repeats one; record the repetition."""
        source, store = inbound.source, self._host.store
        event = await store.find_event("in", source, inbound.source_id)
        if event is not None and not _is_same(event, inbound):
            raise DuplicateEvent(
                f"event {inbound.source_id!r} of {source} was already received with other content", event_id=event.id
            )
        if event is not None and event.status is None:
            return Received(event.id, event.session_id, event.message_id or "")
        now = self._host.clock.now_ms()
        if event is not None:
            event = await store.find_event("in", source, event.routing["duplicate_of"])
        elif inbound.distinct_ms:
            event = await store.find_repeated(source, _digest_of(inbound), now - inbound.distinct_ms)
            if event is not None:
                await self._note_duplicate(inbound, event, now)
        return None if event is None else Duplicate(event.id, event.session_id, event.message_id or "")

    async def _note_duplicate(self, inbound: Inbound, event: LedgerEvent, now: int) -> None:
        """Add an inbound and an outbound row. The message stays the first event's: its turn answers that one alone."""
        inbound_row = msgspec.structs.replace(
            event,
            id=self._host.mint.event(),
            source_id=inbound.source_id,
            message_id=None,
            turn_id=None,
            type=inbound.type,
            status="duplicate",
            routing={"duplicate_of": event.source_id},
            data={},
            at=now,
        )
        outbound_row = msgspec.structs.replace(inbound_row, id=self._host.mint.event(), direction="out", digest=None)
        guard = EventIsNew("in", inbound_row.source, inbound_row.source_id)
        for scope in (event.session_id, STORE_WIDE):
            unit = Unit(scope, (AddEvent(inbound_row), AddEvent(outbound_row)), (guard,), sync="power")
            if await self._host.store.commit(unit) != Refused("session_not_found"):
                return

    def scoped(self, scope: Scope) -> Router:
        """Return a router for another owner: it finds only their sessions."""
        router = copy.copy(self)
        router._scope = scope
        return router

    async def check(self, routing: Routing) -> tuple[Routing, str | None]:
        """Refuse a routing that could not be used later: with an unknown session, agent, model or folder.

        Return it with the model and variant, session id and folder that its names mean now, since they could mean
        others in another process; and its owner: the session's, or this router's.
        """
        owner = self._scope.owner
        if routing.session_id is not None:
            session = await get_session(self._host.store, await self._scope.resolve_session(routing.session_id))
            routing, owner = msgspec.structs.replace(routing, session_id=session.id), session.owner
        elif routing.name is not None:
            await self._find_named(*routing.name, owner)
        if routing.session_id is None or routing.model is not None or routing.agent is not None:
            session = await self._draft_of(routing, {}, owner)
            if routing.workspace_root is not None:
                routing = msgspec.structs.replace(routing, workspace_root=session.workspace_root)
            await admit(self._host, session, "x", model=None, agent=None, attended=False)
        if routing.model is not None:
            routing = msgspec.structs.replace(routing, model=self._host.providers.parse(routing.model))
        return routing, owner

    async def _accept(self, inbound: Inbound, also: Sequence[Write], guards: Sequence[Guard]) -> Received:
        routing = inbound.routing
        # Session and message are known once it is accepted; the unit that stores them has the complete row.
        event = LedgerEvent(
            id=self._host.mint.event(),
            direction="in",
            source=inbound.source,
            source_id=inbound.source_id,
            session_id="",
            message_id=None,
            type=inbound.type,
            digest=_digest_of(inbound),
            routing=routing.chosen(),
            data=inbound.content,
            at=self._host.clock.now_ms(),
        )

        def event_unit(row: MessageRow) -> Unit:
            self._runtime.event_replies.expect(row.session_id)
            known = msgspec.structs.replace(event, session_id=row.session_id, message_id=row.id)
            new: tuple[Guard, ...] = (EventIsNew("in", inbound.source, inbound.source_id),)
            if inbound.distinct_ms:
                new += (DigestIsNew(inbound.source, _digest_of(inbound), event.at - inbound.distinct_ms),)
            return Unit(row.session_id, (AddEvent(known), *also), (*new, *guards))

        if routing.session_id is not None:
            session = await get_session(self._host.store, await self._scope.resolve_session(routing.session_id))
            submission = await self._submit(inbound, session, event_unit)
        elif routing.name is None:
            session, submission = await self._begin(inbound, event_unit)
        else:
            async with self._lock(*routing.name, inbound.owner or ""):
                while True:
                    found = await self._find_named(*routing.name, inbound.owner)
                    if found is not None:
                        # If it is deleted concurrently, a new one must be made.
                        with contextlib.suppress(SessionNotFound):
                            session, submission = found, await self._submit(inbound, found, event_unit)
                            break
                    deleting = None if found is None else found.id
                    free = RouteIsFree(*routing.name, deleting=deleting, owner=inbound.owner)
                    # If another process created it concurrently, it is found now.
                    with contextlib.suppress(RouteTaken):
                        session, submission = await self._begin(inbound, event_unit, free)
                        break
        # Again: a run that ended meanwhile may have removed it.
        self._runtime.event_replies.expect(session.id)
        return Received(event.id, session.id, submission.message_id)

    async def _find_named(self, kind: RouteKind, name: str, owner: str | None) -> Session | None:
        """Return the session with this label or key. With several there is no guess which one was meant."""
        found = await self._host.store.load_routed(kind, name, owner)
        if kind == "routing_key":
            # In older versions branches inherited the key of their origin; it was never theirs.
            found = tuple(session for session in found if session.parent_id is None) or found[:1]
        if len(found) > 1:
            ids = [session.id for session in found]
            raise RoutingConflict(
                f"{len(ids)} sessions have the {kind.replace('_', ' ')} {name!r}: {', '.join(ids)}; archive or delete "
                "all but one, or name a session by its id",
                session_ids=ids,
            )
        return found[0] if found else None

    async def _submit(self, inbound: Inbound, session: Session, also: UnitFor) -> Submission:
        return await self._runtime.prompts.submit(
            session.id,
            inbound.parts,
            model=inbound.routing.model,
            agent=inbound.routing.agent,
            attended=False,
            metadata={"trigger": inbound.trigger.metadata()},
            also=also,
        )

    async def _begin(self, inbound: Inbound, also: UnitFor, *guards: Guard) -> tuple[Session, Submission]:
        """Create a session for the event; its first turn is in the same unit."""
        runtime, host = self._runtime, self._host
        session = await self._draft_of(inbound.routing, inbound.tags, inbound.owner)
        folder = inbound.routing.workspace_root
        if inbound.owner != self._scope.owner and session.workspace_root != folder:
            # Stored as resolved when its owner named it: the path it resolves to now was not allowed.
            raise InvalidInput(
                f"the workspace {folder} is now a link to another folder; name the folder you mean again"
            )
        async with runtime.sessions.lock(session.id):
            runtime.sessions.check_open(session.id)
            config, content = await admit(
                host, session, inbound.parts, model=None, agent=None, attended=False, last_environment=LastEnvironment()
            )
            metadata = {"trigger": inbound.trigger.metadata(), "unattended": True}
            row = await user_row(host, session, config, content, None, metadata, newest_at=0)
            made, new, unit = (InsertSession(session),), LoadedSession(session.id), also(row)
            unit = msgspec.structs.replace(unit, guards=(*unit.guards, *guards))
            submission = await runtime.runner.open(session, config, row, content, before=made, also=unit, loaded=new)
        runtime.sessions.publish("session_created", session.id)
        host.hooks.observe("session_create", session, session)
        return session, submission

    async def _draft_of(self, routing: Routing, tags: dict[str, Any], owner: str | None) -> Session:
        return await self._scope.draft(
            model=routing.model,
            agent=routing.agent,
            workspace_root=routing.workspace_root,
            title=routing.title,
            metadata={**tags, **(dict([routing.name]) if routing.name is not None else {})},
            owner=owner,
        )

    def _lock(self, *name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def resume(self, session_id: str) -> None:
        """Start what triggers queued in a session before a restart, unless the queue was paused by an abort or a
        user."""
        sessions = self._runtime.sessions
        with contextlib.suppress(SessionNotFound):
            async with sessions.lock(session_id):
                loaded = (
                    None if sessions.is_live(session_id) else await load_session_state(self._host.store, session_id)
                )
                obstacle = find_obstacle(sessions, session_id, loaded)
                is_stopped = await self._runtime.queue.find_pause(session_id) in ("abort", "person")
                if sessions.is_open(session_id) and obstacle is None and not is_stopped:
                    await self._runtime.runner.fire(session_id, only="triggered")


def _digest_of(inbound: Inbound) -> str:
    return inbound.digest or _content_digest(inbound)


def _is_same(event: LedgerEvent, inbound: Inbound) -> bool:
    # Older versions stored the digest of the content for every event.
    if event.digest in (_digest_of(inbound), _content_digest(inbound)):
        return True
    # The webhook's secret may have changed since then.
    return inbound.digest is not None and event.data == inbound.content


def _content_digest(inbound: Inbound) -> str:
    return digest_event({"type": inbound.type, **inbound.content})
