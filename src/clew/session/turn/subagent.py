"""Subagents: tasks run as child sessions, with no more permissions than their parent, and ended with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from clew.errors import ClewError, ToolFailed
from clew.session.acquire.acquire import BY_PARENT
from clew.session.acquire.live_sessions import LiveSessions
from clew.session.acquire.loaded_session import LoadedSession
from clew.session.host import Host
from clew.session.prompt.admission import PromptContent, read_parts, user_row
from clew.session.prompt.submission import Submission, TurnOutcome
from clew.session.prompt.turn_config import LastEnvironment, TurnConfig, resolve
from clew.store.unit import InsertSession, Write
from clew.tools.base import ChildOutcome, Signal
from clew.transcript import chunk as c
from clew.transcript.message import MessageRow
from clew.transcript.metadata import PLACE_KEYS
from clew.transcript.part import first_words
from clew.transcript.session import Model, Session

__all__ = ["MAX_DEPTH", "Subagents"]

MAX_DEPTH: Final = 3
Stop = Callable[[str, str], Awaitable[bool]]
"""Stops the active operation of a session, with a reason."""


class Open(Protocol):
    """Stores a prompt's message and preceding writes, and starts its run; the caller holds the session's lock."""

    async def __call__(
        self,
        session: Session,
        config: TurnConfig,
        row: MessageRow,
        content: PromptContent,
        *,
        before: Sequence[Write],
        loaded: LoadedSession,
    ) -> Submission: ...


class Subagents:
    """The service that starts child sessions for the ``task`` tool."""

    def __init__(self, host: Host, sessions: LiveSessions, open: Open, stop: Stop) -> None:
        self._host = host
        self._sessions = sessions
        self._open = open
        self._stop = stop

    async def spawn(
        self, prompt: str, agent: str | None, config: TurnConfig, signal: Signal, report: Callable[[Any], None]
    ) -> ChildOutcome:
        """Run a subagent in its own session, with no more permissions than its parent; it ends with its parent."""
        child, submission = await self._start(prompt, agent, config)
        progress = _ChildProgress(self._host, child.id, report)
        outcome = await self._wait(child.id, submission, progress, signal)
        if outcome.status == "aborted":
            raise ToolFailed(f"the subagent did not finish: {outcome.stopped}")
        text = f"the subagent failed: {(outcome.error or {}).get('message')}"
        if outcome.status != "failed":
            last = await self._host.store.find_message(child.id, outcome.message_id)
            text = last.texts[-1] if last is not None and last.texts else "(the subagent said nothing)"
        await progress.count()
        return ChildOutcome(child.id, outcome.status, text, progress.used)

    async def _start(self, prompt: str, agent: str | None, config: TurnConfig) -> tuple[Session, Submission]:
        """Create the child session of this turn's session and send it the prompt."""
        host, now, depth = self._host, self._host.clock.now_ms(), config.depth + 1
        if depth > MAX_DEPTH:
            raise ToolFailed(f"subagents may be nested at most {MAX_DEPTH} levels deep")
        place_metadata = {key: value for key, value in config.session.metadata.items() if key in PLACE_KEYS}
        try:
            model = await self._model_of(agent, config)
            child = Session(
                id=host.mint.session(host.store.capabilities.session_ids),
                agent=agent or config.session.agent,
                model=model.plain,
                workspace_root=config.session.workspace_root,
                parent_id=config.session.id,
                owner=config.session.owner,
                metadata={"kind": "subagent", "depth": depth, **place_metadata},
                created_at=now,
                updated_at=now,
            )
            child_config = await resolve(
                host,
                child,
                model=model,
                agent=agent,
                attended=False,
                parent=config.permit,
                depth=depth,
                last_environment=LastEnvironment(),
            )
        except ClewError as error:
            raise ToolFailed(str(error)) from error
        async with self._sessions.lock(child.id):
            content = read_parts(prompt, child_config.workspace, now, child_config.info)
            row = await user_row(host, child, child_config, content, None, {"unattended": True}, newest_at=0)
            before, new = (InsertSession(child),), LoadedSession(child.id)
            return child, await self._open(child, child_config, row, content, before=before, loaded=new)

    async def _model_of(self, agent: str | None, config: TurnConfig) -> Model:
        """Return the model that the agent names, else the parent's."""
        if agent is None:
            return config.model
        catalog = await asyncio.to_thread(self._host.agents, config.workspace, config.session.owner)
        named = catalog.get(agent).model
        return config.model if named is None else self._host.providers.parse(named)

    async def _wait(
        self, child_id: str, submission: Submission, progress: _ChildProgress, signal: Signal
    ) -> TurnOutcome:
        """Wait until the child's turn has ended, reporting its progress; stop it on the signal or on cancellation."""
        loop = asyncio.get_running_loop()
        watching = loop.create_task(progress.follow())
        abort = loop.create_task(signal.wait())
        ended = loop.create_task(submission.wait())
        try:
            await asyncio.wait({abort, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            abort.cancel()
            watching.cancel()
            if not ended.done():
                # The stop may no longer be storable, but the run is stopped either way.
                with contextlib.suppress(ClewError):
                    await self._stop(child_id, BY_PARENT)
        return await ended


_MAX_TEXT_CHARS: Final = 240
"""Characters shown from the end of its text."""
_MAX_GIST_CHARS: Final = 120


class _ChildProgress:
    """A follower of one child session's streams that reports every change until it is stopped."""

    def __init__(self, host: Host, session_id: str, report: Callable[[Any], None]) -> None:
        self._host = host
        self._session_id = session_id
        self._report = report
        self._progress: dict[str, Any] = {"session_id": session_id}
        self._text: dict[str, str] = {}

    @property
    def used(self) -> dict[str, Any]:
        """The steps, tokens and cost so far, as far as they are known."""
        return {key: self._progress[key] for key in ("steps", "tokens", "cost_usd") if key in self._progress}

    async def follow(self) -> None:
        self._report(dict(self._progress))
        last = None
        # A truncated message or a warning starts another stream within the same run.
        while (stream := self._host.live.find_stream(self._session_id)) is not None and stream is not last:
            last = stream
            # A follower that is too slow gets no more progress; the subagent continues.
            with contextlib.suppress(ClewError):
                async for batch in stream.follow(replay=False):
                    await self._add(batch)

    async def _add(self, chunks: Sequence[c.Chunk]) -> None:
        progress = self._progress
        for chunk in chunks:
            if isinstance(chunk, c.StartStep):
                progress["steps"] = progress.get("steps", 0) + 1
            elif isinstance(chunk, c.TextDelta):
                text = self._text.get(chunk.id, "") + chunk.delta
                self._text = {chunk.id: text[-4 * _MAX_TEXT_CHARS :]}
                progress["text"] = " ".join(text.split())[-_MAX_TEXT_CHARS:]
            elif isinstance(chunk, c.ToolInputAvailable):
                progress["tool"], progress["doing"] = chunk.tool_name, _gist(chunk.input)
            elif isinstance(chunk, c.FinishStep):
                await self.count()
        self._report(dict(progress))

    async def count(self) -> None:
        """Load what it has spent."""
        spend = (await self._host.store.load_spend([self._session_id])).get(self._session_id)
        if spend is not None and spend.tokens:
            self._progress |= {"tokens": spend.tokens, "cost_usd": spend.cost_usd}


def _gist(given: Any) -> str:
    """Return the first text among the arguments, which for most tools names their subject."""
    values = given.values() if isinstance(given, dict) else (given,)
    return first_words(next((value for value in values if isinstance(value, str)), ""), _MAX_GIST_CHARS)
