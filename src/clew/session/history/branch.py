"""Branches: a new session that starts as a copy of a line of another.

A branch has its own ids and never refers to messages of its parent, so deleting either leaves the other intact.
:mod:`clew.session.history.branch_plan` decides what is copied; one unit writes it, and the store copies most messages
without reading them. Only messages that must change are read: summaries, which name other messages, and calls that
wait for a human.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

import msgspec

from clew import ids
from clew.errors import BranchPointInvalid, ClewError
from clew.failpoints import failpoint
from clew.session.acquire.prepare import is_live_anywhere, locked_idle_session, settle_idle
from clew.session.history.branch_line import find_start, load_branch_line, with_rows
from clew.session.history.branch_plan import check_point, check_turn, cut_line, plan_branch, start_line
from clew.session.history.lookup import get_turn_of, locate_message
from clew.session.history.restore import Restoring
from clew.session.host import Host
from clew.session.prompt.admission import admit, user_row
from clew.session.prompt.queue import plan_wait
from clew.session.prompt.title import branch_title
from clew.session.runtime import Runtime
from clew.store.base import get_session, get_turn
from clew.store.deletion import delete_unfinished
from clew.store.unit import Guard, Unit, Write
from clew.transcript.metadata import (
    MODE_KEY,
    NAMING_KEY,
    PAUSED_KEY,
    PICKED_KEY,
    PINNED_KEY,
    PLACE_KEYS,
    check_metadata,
    check_names,
    local_place,
)
from clew.transcript.rule import check_mode
from clew.transcript.session import Model, Session
from clew.transcript.turn import Turn
from clew.transcript.turn_state import OPEN
from clew.transcript.value_check import check_value

__all__ = ["Branching"]

_OWN_METADATA: Final = frozenset(
    {"kind", "depth", "label", "routing_key", "source", "cron_job_id", "webhook", NAMING_KEY, PAUSED_KEY, PINNED_KEY}
)
"""Session metadata that a branch does not inherit: the session's role for its parent, its routing, its origin, and the
state of its queue, title and pin."""


class Branching:
    """The service that makes branches of the sessions of one engine."""

    def __init__(self, host: Host, runtime: Runtime) -> None:
        self._host = host
        self._runtime = runtime
        self._sessions = runtime.sessions

    async def branch(
        self,
        session_id: str,
        from_message_id: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        model: str | Model | dict[str, Any] | None = None,
        start_message_id: str | None = None,
        worktree: str | None = None,
    ) -> Session:
        """Create a session with a copy of the line up to and including that message. With a ``worktree`` it works in
        that new folder, with the files as they were then."""
        changes = _check_metadata(metadata)
        check_value(msgspec.to_builtins(model), "model")
        chosen = self._host.providers.parse(model) if model is not None else None
        if start_message_id is not None:
            ids.check_named_message_id(start_message_id)
        async with locked_idle_session(self._host, self._sessions, session_id) as source:
            point = await locate_message(self._host.store, session_id, from_message_id)
            turn = check_point(point)
            if worktree is not None:
                await Restoring(self._host, self._runtime).check_out(source, turn, point.row, worktree)
            # A compaction in force on the line is also in force at any message it kept.
            return await self._copy(
                *(source, turn, point.row.id, changes, chosen, start_message_id),
                on_line=point.on_line,
                worktree=worktree,
            )

    async def fork(self, turn_id: str, *, label: str | None = None, text: str | None = None) -> Session:
        """Create a session that branches at a turn, even while a run follows it; ``text`` is its first prompt."""
        changes = _check_metadata({"label": label if label is not None else f"fork-{uuid4()}"})
        store = self._host.store
        session_id = (await get_turn(store, ids.check_turn_id(turn_id))).session_id
        async with self._sessions.lock(session_id):
            source = await self._sessions.get_open(session_id)
            turn = await get_turn_of(store, session_id, turn_id)
            # Settled turns and all above them do not change while a run is active below: only that run could reopen
            # one.
            if turn.status in OPEN or not await is_live_anywhere(self._host, self._sessions, session_id):
                await settle_idle(self._host, self._sessions, session_id)
            turn = check_turn(await get_turn_of(store, session_id, turn_id))
            message_ids = (await store.load_path(session_id, turn_id, turns=1))[-1].messages
            if not message_ids:
                raise BranchPointInvalid("this turn has no message to fork from", turn_id=turn.id)
            return await self._copy(source, turn, message_ids[-1], changes, None, None, text)

    async def _copy(
        self,
        source: Session,
        turn: Turn,
        point_id: str,
        changes: Mapping[str, Any],
        model: Model | None,
        start_message_id: str | None,
        text: str | None = None,
        *,
        on_line: bool = False,
        worktree: str | None = None,
    ) -> Session:
        host, now = self._host, self._host.clock.now_ms()
        loaded = await host.store.at_once(
            source.id,
            lambda moment: load_branch_line(
                moment, source, turn, point_id, on_line=on_line, start_message_id=start_message_id
            ),
        )
        line, whole = cut_line(loaded.line, turn.id, point_id), loaded.line.links[turn.id][-1] == point_id
        if start_message_id is not None:
            start = await find_start(host.store, line, start_message_id)
            if start is None:
                start = (await locate_message(host.store, source.id, start_message_id)).row
            line = start_line(line, start)
            # If the point is a summary that the slice leaves out, the line ends before it.
            line = await with_rows(host.store, line, line.links[line.turns[-1].id][-1])
        child = Session(
            id=host.mint.session(host.store.capabilities.session_ids),
            agent=source.agent,
            model=model or source.model,
            workspace_root=worktree or source.workspace_root,
            parent_id=source.id,
            owner=source.owner,
            parent_message_id=point_id,
            metadata={
                **await self._metadata_of_copy(source, changes, now, picked=model is not None),
                **(local_place(worktree) if worktree is not None and source.metadata.keys() & PLACE_KEYS else {}),
            },
            created_at=now,
            updated_at=now,
        )
        *portions, writes = plan_branch(line, child, host.mint, now, whole=whole, runs=loaded.runs)
        guards: tuple[Guard, ...] = ()
        if text is not None:
            # The prompt is queued in the unit that creates the copy, so a crash leaves both or neither.
            _, content = await admit(host, child, text, model=None, agent=None, attended=True)
            row = await user_row(host, child, None, content, None, None)
            ledger = self._runtime.event_replies.plan_prompt(row)
            writes, guards = (*writes, *plan_wait(row, content), *ledger.writes), ledger.guards
        await self._commit_copy(portions, Unit(child.id, writes, guards, sync="power"))
        self._sessions.publish("session_created", child.id)
        if text is not None:
            async with self._sessions.lock(child.id):
                await self._runtime.runner.fire(child.id)
        session = await get_session(host.store, child.id)
        if worktree is not None and session.head_turn_id is not None:
            # The first state of its own folder, with which later ones are compared.
            self._runtime.snapshots.end_turn(session, session.head_turn_id)
        host.hooks.observe("session_create", session, session)
        return session

    async def _metadata_of_copy(
        self, source: Session, changes: Mapping[str, Any], now: int, *, picked: bool
    ) -> dict[str, Any]:
        """Return the metadata of a copy. ``picked``: its model was chosen with the branch."""
        store = self._host.store
        own = {MODE_KEY, *_OWN_METADATA} if source.mode == "accept_edits" else _OWN_METADATA
        inherited = {key: value for key, value in source.metadata.items() if key not in own}
        if source.title is not None and "title" not in changes:
            parents = [source.id, *([source.parent_id] if source.parent_id is not None else [])]
            sibling_titles = [one.title for id_ in parents for one in await store.list_children(id_)]
            inherited["title"] = branch_title(source.title, sibling_titles)
        if picked:
            inherited[PICKED_KEY] = max(now, await store.newest_message_at(source.id))
        merged = {key: value for key, value in {**inherited, **changes}.items() if value is not None}
        if changes.keys() - {"label"}:
            check_metadata(merged)
        return merged

    async def _commit_copy(self, portions: Sequence[tuple[Write, ...]], last: Unit) -> None:
        """Commit the portions of a copy, then the unit that completes it; if one fails, delete those before it."""
        failpoint("history.before_branch")
        store, session_id = self._host.store, last.session_id
        try:
            for portion in portions:
                await self._sessions.commit(Unit(session_id, portion))
                failpoint("history.between_portions")
            await self._sessions.commit(last)
        except BaseException:
            with contextlib.suppress(ClewError):  # recovery deletes what remains
                if portions and await store.find_session(session_id) is None:
                    await delete_unfinished(store, session_id)
            raise


def _check_metadata(metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    check_metadata(metadata)
    changes = dict(metadata or {})
    check_mode(changes.get(MODE_KEY) or "ask")
    check_names(changes)
    return changes
