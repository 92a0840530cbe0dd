"""Subagents: a task run as a child session, never freer than its parent, and ended when its parent is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from clew.errors import ClewError, ToolFailed
from clew.runtime.admission import read_parts
from clew.runtime.host import Host, Setting
from clew.runtime.run import TurnOutcome
from clew.runtime.setting import resolve
from clew.store.unit import InsertSession, Unit
from clew.tools.base import ChildOutcome, Signal
from clew.transcript.session import Session

if TYPE_CHECKING:
    from clew.runtime.desk import Desk, Submission

__all__ = ["MAX_DEPTH", "Subagents"]

MAX_DEPTH: Final = 3


class Subagents:
    """Starts child sessions for the ``task`` tool."""

    def __init__(self, host: Host, desk: Desk) -> None:
        self._host = host
        self._desk = desk

    async def spawn(self, prompt: str, agent: str | None, setting: Setting, signal: Signal) -> ChildOutcome:
        """Run a subagent as a session of its own, never freer than its parent, ended when its parent is."""
        host = self._host
        if setting.depth + 1 > MAX_DEPTH:
            raise ToolFailed(f"subagents may be nested {MAX_DEPTH} deep, not deeper")
        now = host.clock.now_ms()
        child = Session(
            id=host.mint.session(host.store.capabilities.session_ids),
            agent=agent or setting.session.agent,
            model=setting.model,
            workspace_root=setting.session.workspace_root,
            parent_id=setting.session.id,
            metadata={"kind": "subagent", "depth": setting.depth + 1},
            created_at=now,
            updated_at=now,
        )
        try:
            own = await resolve(
                host,
                child,
                model=setting.model,
                agent=agent,
                attended=False,
                parent=setting.permit,
                depth=setting.depth + 1,
            )
        except ClewError as error:
            raise ToolFailed(str(error)) from error
        await self._desk.commit(Unit(child.id, (InsertSession(child),), sync="power"))
        async with self._desk.lock(child.id):
            prompted = read_parts(prompt, own.workspace, now)
            row = await self._desk.user_row(child, own, prompted, None, {"unattended": True})
            submission = await self._desk.open(child, own, row, prompted)
        run = self._desk.get_run(child.id)
        abort = asyncio.get_running_loop().create_task(signal.wait())
        ended = asyncio.get_running_loop().create_task(run.wait())
        try:
            await asyncio.wait({abort, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ended.done():
                run.abort("aborted by parent")
            abort.cancel()
        outcome = await ended
        if outcome.status == "aborted":
            raise ToolFailed("aborted by parent")
        return ChildOutcome(child.id, outcome.status, await self._last_text(child.id, submission, outcome))

    async def _last_text(self, session_id: str, submission: Submission, outcome: TurnOutcome) -> str:
        row = await self._host.store.find_message(session_id, outcome.message_id)
        texts = row.texts if row else []
        if outcome.status == "failed":
            return f"the subagent failed: {(outcome.error or {}).get('message')}"
        return texts[-1] if texts else "(the subagent said nothing)"
