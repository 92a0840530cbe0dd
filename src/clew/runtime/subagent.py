"""Subagents: a task run as a child session, never freer than its parent, and ended when its parent is."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from clew.errors import ClewError, ToolFailed
from clew.runtime.admission import PromptContent, read_parts, user_row
from clew.runtime.child_progress import ChildProgress
from clew.runtime.host import Host
from clew.runtime.live_sessions import LiveSessions
from clew.runtime.setting import Setting, Told, resolve
from clew.runtime.settle import BY_PARENT
from clew.runtime.standing import Standing
from clew.runtime.submission import Submission
from clew.store.unit import InsertSession, Write
from clew.tools.base import ChildOutcome, Signal
from clew.transcript.message import MessageRow
from clew.transcript.metadata import PLACE_KEYS
from clew.transcript.session import Session

__all__ = ["MAX_DEPTH", "Subagents"]

MAX_DEPTH: Final = 3
Stop = Callable[[str, str], Awaitable[bool]]
"""Stops what runs on a session, and says there who did."""


class Open(Protocol):
    """Stores a prompt's message, with what is written before it, and starts its run, under the session's lock."""

    async def __call__(
        self,
        session: Session,
        setting: Setting,
        row: MessageRow,
        content: PromptContent,
        *,
        before: Sequence[Write],
        standing: Standing,
    ) -> Submission: ...


class Subagents:
    """Starts child sessions for the ``task`` tool."""

    def __init__(self, host: Host, sessions: LiveSessions, open: Open, stop: Stop) -> None:
        self._host = host
        self._sessions = sessions
        self._open = open
        self._stop = stop

    async def spawn(
        self, prompt: str, agent: str | None, setting: Setting, signal: Signal, report: Callable[[Any], None]
    ) -> ChildOutcome:
        """Run a subagent as a session of its own, never freer than its parent, ended when its parent is."""
        host = self._host
        if setting.depth + 1 > MAX_DEPTH:
            raise ToolFailed(f"subagents may be nested {MAX_DEPTH} deep, not deeper")
        now, model = host.clock.now_ms(), setting.model
        try:
            if agent is not None:
                named = (await asyncio.to_thread(host.agents, setting.workspace)).get(agent).model
                model = host.providers.parse(named) if named is not None else model
        except ClewError as error:
            raise ToolFailed(str(error)) from error
        place = {key: value for key, value in setting.session.metadata.items() if key in PLACE_KEYS}
        child = Session(
            id=host.mint.session(host.store.capabilities.session_ids),
            agent=agent or setting.session.agent,
            model=model.plain,
            workspace_root=setting.session.workspace_root,
            parent_id=setting.session.id,
            owner=setting.session.owner,
            metadata={"kind": "subagent", "depth": setting.depth + 1, **place},
            created_at=now,
            updated_at=now,
        )
        try:
            own = await resolve(
                host,
                child,
                model=model,
                agent=agent,
                attended=False,
                parent=setting.permit,
                depth=setting.depth + 1,
                told=Told(),
            )
        except ClewError as error:
            raise ToolFailed(str(error)) from error
        async with self._sessions.lock(child.id):
            content = read_parts(prompt, own.workspace, now, own.info)
            row = await user_row(host, child, own, content, None, {"unattended": True}, newest_at=0)
            made, new = (InsertSession(child),), Standing(child.id)
            submission = await self._open(child, own, row, content, before=made, standing=new)
        progress = ChildProgress(host, child.id, report)
        watching = asyncio.get_running_loop().create_task(progress.follow())
        abort = asyncio.get_running_loop().create_task(signal.wait())
        ended = asyncio.get_running_loop().create_task(submission.wait())
        try:
            await asyncio.wait({abort, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            abort.cancel()
            watching.cancel()
            if not ended.done():
                # It is stopped also where that cannot be stored any more.
                with contextlib.suppress(ClewError):
                    await self._stop(child.id, BY_PARENT)
        outcome = await ended
        if outcome.status == "aborted":
            raise ToolFailed(f"the subagent did not finish: {outcome.stopped}")
        said = f"the subagent failed: {(outcome.error or {}).get('message')}"
        if outcome.status != "failed":
            last = await host.store.find_message(child.id, outcome.message_id)
            said = last.texts[-1] if last is not None and last.texts else "(the subagent said nothing)"
        await progress.count()
        return ChildOutcome(child.id, outcome.status, said, progress.taken)
