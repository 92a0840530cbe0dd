"""The memory store: one value per session, nothing on disk.

It is the contract in its plainest form, and the ground the file stores build on: a session's value can be loaded
and let go of alone, and a unit touches exactly one.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from msgspec.structs import astuple, replace

from clew.clock import Clock
from clew.errors import InternalError, NotSupported, StoreClosed
from clew.ids import Mint
from clew.store import unit as u
from clew.store.base import (
    Blob,
    Capabilities,
    Damage,
    FullSession,
    Rebuilt,
    SearchPage,
    SearchQuery,
    SessionQuery,
    ShownPage,
)
from clew.store.copies import plan_copy
from clew.store.facts import PROMPT_STREAM, Fact, call_facts, facts_of
from clew.store.guards import refusal
from clew.store.memory.change import Change
from clew.store.memory.conversations import MemoryMoment
from clew.store.memory.present import ValuePresent
from clew.store.memory.session_value import SessionValue
from clew.store.memory.tables import event_key
from clew.store.memory.triggers import MemoryTriggers
from clew.transcript.model_call import ModelCall, brought_up_to_date, without_session
from clew.transcript.session import Spend
from clew.transcript.spend import UsageGroup, UsageQuery, add_costs, sum_calls
from clew.triggers.values.ledger import without_content

__all__ = ["MemoryStore"]


class MemoryStore(MemoryMoment, MemoryTriggers):
    """The contract held in dictionaries. What it acknowledges lives as long as the process."""

    def __init__(self, *, event_log: bool = False, clock: Clock | None = None) -> None:
        super().__init__()
        self._mint = Mint()
        self._id = secrets.token_hex(8)
        self._clock = clock or self._clock
        self._log: dict[str, tuple[Fact, ...]] | None = {} if event_log else None

    @property
    def url(self) -> str:
        return "memory:"

    def announce(self, url: str | None) -> None:
        """Do nothing: no other process can open this store."""

    async def check_writable(self) -> None:
        """Do nothing: memory can always be written."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(chunk_durable=True, search=False, many_processes=False, holds_sessions=False)

    # Writing

    def submit(self, unit: u.Unit) -> asyncio.Future[u.Outcome]:
        future: asyncio.Future[u.Outcome] = asyncio.get_running_loop().create_future()
        try:
            if self._closed:
                raise StoreClosed("the store is closed")
            outcome = self._apply(unit)
            future.set_result(u.Committed() if isinstance(outcome, Change) else outcome)
        except Exception as error:
            future.set_exception(error)
        return self._notify_on_commit(unit, future)

    async def commit(self, unit: u.Unit) -> u.Outcome:
        return await self.submit(unit)

    def _apply(self, unit: u.Unit) -> Change | u.Refused:
        """Carry out a unit; what it changed, or why it must not be."""
        value = self._values.get(unit.session_id)
        refused = refusal(
            unit,
            value.state["state"] if value else None,
            lambda id_: None if value is None else value.find_queued(id_),
            lambda guard: event_key(*astuple(guard)) in self._shared.events,
            lambda guard: self._repeated(*astuple(guard)) is not None,
            self._is_alive,
            self._shared.schedules.get,
            lambda id_: 0 if value is None else sum(row.client_message_id == id_ for row in value.messages.values()),
            lambda guard: self._routed(guard.kind, guard.name, guard.owner),
            lambda project: (
                self._shared.rules.get(project, ())
                if project is not None
                else value.session.permissions
                if value
                else ()
            ),
            self._named,
        )
        if refused is not None:
            return refused
        change = Change()
        try:
            for write in unit.writes:
                self._write(change, unit.session_id, write)
            if self._log is not None:
                self._tell(change, unit, self._log)
        except KeyError as error:
            change.undo()
            raise InternalError(f"a write names what is not there: {error}", session_id=unit.session_id) from error
        except BaseException:
            change.undo()
            raise
        return change

    def _write(self, change: Change, session_id: str, write: u.Write) -> None:
        """Carry out one write. What touches nothing but its session is the business of the session's value."""
        shared = self._shared
        match write:
            case u.InsertSession(session):
                change.put(self._values, session_id, SessionValue.of(session))
            case u.DeleteSession():
                self._delete_session(change, session_id)
            case u.CopyLine(source_id):
                source = self._values[source_id]
                self._values[session_id].copy_line(
                    change, source, source.with_runs(plan_copy(session_id, write), session_id), self._mint.part
                )
            case u.PutPrompt(digest, body):
                if digest not in shared.prompts:
                    change.put(shared.prompts, digest, body)
            case u.PutBlob(sha256, media_type, data):
                if sha256 not in shared.blobs:
                    change.put(shared.blobs, sha256, Blob(sha256, media_type, data))
                change.put(self._values[session_id].blobs, sha256, None)
            case u.LinkBlob(sha256):
                if sha256 not in shared.blobs:
                    raise InternalError("a link names a blob that is not there", sha256=sha256)
                change.put(self._values[session_id].blobs, sha256, None)
            case u.PutProjectRules(project, rules):
                change.put(shared.rules, project, rules)
            case u.AddEvent(event):
                key = event_key(event.direction, event.source, event.source_id, event.attempt)
                holder = event.session_id if self._is_there(event.session_id) else u.STORE_WIDE
                if key in shared.events or holder != session_id:
                    raise InternalError("an event is in the ledger already, or of another session", event_id=event.id)
                seq = max((held.seq for held in shared.events.values()), default=0) + 1
                owner = self._values[session_id].session.owner if session_id in self._values else event.owner
                change.put(shared.events, key, replace(event, seq=seq, owner=owner))
            case u.PutSchedule(schedule):
                known = shared.schedules.get(schedule.id)
                if known is None or known.routing != schedule.routing:
                    # A stored schedule may stay although its session was removed: it reports why it cannot run.
                    self._must_be_there(schedule.routing.session_id)
                change.put(shared.schedules, schedule.id, schedule)
            case u.DropSchedule(schedule_id):
                change.drop(shared.schedules, schedule_id)
            case u.PutWebhook(webhook):
                door = shared.webhooks.get(webhook.key)
                if door is None or door.routing != webhook.routing:
                    self._must_be_there(webhook.routing.session_id)
                change.put(shared.webhooks, webhook.key, webhook)
            case u.DropWebhook(key):
                change.drop(shared.webhooks, key)
            case u.JoinReplica() | u.BeatReplica() | u.LeaveReplica():
                self._write_replica(change, write)
            case u.PutCall(call) if session_id == u.STORE_WIDE:
                if call.session_id is not None:
                    raise InternalError("a model call is of another session", call_id=call.id)
                self._keep_calls(change, [call])
            case _:
                self._values[session_id].apply(change, write)

    def _delete_session(self, change: Change, session_id: str) -> None:
        shared, blobs = self._shared, self._values[session_id].blobs
        self._keep_calls(change, map(without_session, self._values[session_id].all_calls()))
        change.drop(self._values, session_id)
        for key, event in [one for one in shared.events.items() if one[1].session_id == session_id]:
            change.put(shared.events, key, without_content(event))
        for id_ in [id_ for id_, one in shared.schedules.items() if one.routing.session_id == session_id]:
            change.drop(shared.schedules, id_)
        for name in [name for name, one in shared.webhooks.items() if one.routing.session_id == session_id]:
            change.drop(shared.webhooks, name)
        if self._may_collect():
            for sha256 in blobs.keys() - self._named_blobs():
                change.drop(shared.blobs, sha256)
            for digest in shared.prompts.keys() - self._named_prompts():
                change.drop(shared.prompts, digest)
                if self._log is not None:
                    change.drop(self._log, f"{PROMPT_STREAM}{digest}")

    def _keep_calls(self, change: Change, calls: Iterable[ModelCall]) -> None:
        """Keep calls whose session is gone: each day is written once, however many of them were asked in it."""
        days: dict[str, dict[str, ModelCall]] = {}
        for call in calls:
            if call.day not in days:
                days[call.day] = {one.id: one for one in self._shared.calls.get(call.day, ())}
            day = days[call.day]
            day[call.id] = brought_up_to_date(day.get(call.id), call)
        for name, held in days.items():
            change.put(self._shared.calls, name, tuple(held.values()))

    def _may_collect(self) -> bool:
        """Whether it is known of everything that is there what names what."""
        return True

    def _named_blobs(self) -> set[str]:
        """The blobs that sessions name."""
        return {sha256 for value in self._values.values() for sha256 in value.blobs}

    def _named_prompts(self) -> set[str]:
        """The prompts that sessions name."""
        return {digest for value in self._values.values() for digest in value.prompts()}

    def _is_there(self, session_id: str) -> bool:
        return session_id in self._values

    def _must_be_there(self, session_id: str | None) -> None:
        if session_id is not None and not self._is_there(session_id):
            raise InternalError("a write names a session that is not there", session_id=session_id)

    def _tell(self, change: Change, unit: u.Unit, log: dict[str, tuple[Fact, ...]]) -> None:
        """Add what the unit has settled to the log, as part of it."""
        new_facts = facts_of(unit, ValuePresent(self._values, self._shared))
        for new in new_facts:
            held = log.get(new.stream_id, ())
            if new.once and held:
                continue
            seq = held[-1].seq + 1 if held else 1
            if new.type == "session.deleted":
                new_facts += call_facts(fact.data for fact in held if fact.type == "call.noted")
                held = ()
            fact = Fact(new.stream_id, seq, self._clock.now_ms(), new.type, new.data)
            change.put(log, new.stream_id, (*held, fact))

    # Care

    async def store_id(self) -> str:
        return self._id

    async def session_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._values))

    async def find_full_session(self, session_id: str) -> FullSession | None:
        value = await self._find(session_id)
        if value is None:
            return None
        return FullSession(
            value.session,
            value.all_messages(),
            value.tree(),
            value.waiting(),
            dict(value.seals),
            value.pending(),
            pruned=value.all_pruned(),
            calls=value.all_calls(),
            steps=tuple(step for turn_id in sorted(value.turns) for step in value.steps.get(turn_id, ())),
        )

    async def load_usage(self, query: UsageQuery) -> tuple[UsageGroup, ...]:
        held = (call for value in self._values.values() for call in value.calls.values())
        return sum_calls((*await self.load_calls(None), *held), query)

    async def load_spend(self, session_ids: Collection[str]) -> dict[str, Spend]:
        await self._list_all()
        subagents: dict[str | None, list[str]] = {}
        for session in self._sessions():
            if session.kind == "subagent":
                subagents.setdefault(session.parent_id, []).append(session.id)
        found: dict[str, Spend] = {}
        for session_id in session_ids:
            family = [session_id]
            for id_ in family:
                family += [child for child in subagents.get(id_, ()) if child not in family]
            spent = [self._spend_of(id_) for id_ in family]
            calls, tokens = sum(one.calls for one in spent), sum(one.tokens for one in spent)
            found[session_id] = Spend(calls, tokens, add_costs(one.cost_usd for one in spent), len(family) - 1)
        return found

    async def list_shown(self, query: SessionQuery) -> ShownPage:
        page = await self.list_sessions(query)
        ids = [session.id for session in page.sessions]
        spent, unsettled = await self.load_spend(ids), await self.unsettled_sessions(ids)
        shown = (replace(session, spend=spent[session.id]) for session in page.sessions)
        return ShownPage(tuple(shown), page.next, frozenset(unsettled), frozenset(await self.failed_sessions(ids)))

    async def search(self, query: SearchQuery) -> SearchPage:
        raise self._not_supported("cannot search; a sqlite: one can (see clew convert)")

    async def rebuild_search(self) -> None:
        raise self._not_supported("cannot search; a sqlite: one can (see clew convert)")

    async def rebuild(self, target: Path) -> Rebuilt:
        raise self._not_supported("keeps no event log to rebuild from; a sqlite: one does")

    def _not_supported(self, what: str) -> NotSupported:
        return NotSupported(f"a {self.url.partition(':')[0]}: store {what}")

    async def verify(self) -> Sequence[Damage]:
        return ()

    async def losses(self) -> tuple[Damage, ...]:
        return ()

    async def accept_loss(self, loss_id: str, at: int) -> bool:
        return False

    async def load_facts(self, stream_id: str) -> tuple[Fact, ...]:
        return self._log.get(stream_id, ()) if self._log is not None else ()

    async def backup(self, target: Path) -> None:
        raise NotSupported("a memory store has nothing to back up; open a sqlite: store to keep sessions")

    async def write_ledger(self, target: Path) -> None:
        raise NotSupported(
            "the ledger is written from a sqlite: store; `clew convert` this one into such a store first"
        )

    async def release(self, session_id: str) -> None:
        pass

    async def close(self) -> None:
        self._closed = True
