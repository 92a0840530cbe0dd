"""Summaries: one call to the provider's cheap model, with fallbacks if that does not work.

The input is plain data, the output a parsed and checked text. Every failure ends in a :class:`SummaryFailed` that says
whether waiting might have helped. Nothing is stored here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from clew.compaction.budget import estimate_tokens
from clew.compaction.plan import SummaryTask
from clew.compaction.policy import Policy
from clew.compaction.record import Strategy
from clew.compaction.serialise import chunks_of, history_text
from clew.compaction.summary import SummaryRejected, parse_summary, request_text, system_prompt
from clew.errors import ClewError, CompactionError
from clew.long_work import go_through
from clew.providers.base import ModelRequest, ProviderFailure
from clew.providers.retry import delay_ms
from clew.session.cancellable import after, run_until
from clew.session.hooks import HookRefused
from clew.session.host import Host
from clew.session.model_calls import ask_text
from clew.session.progress import ways_out
from clew.transcript.message import Message
from clew.transcript.part import output_text, text_part
from clew.transcript.pruned import Pruned, prune_part
from clew.transcript.session import Model, Session
from clew.transcript.usage import Usage

__all__ = ["Summariser", "SummaryFailed"]

log = logging.getLogger("clew.compaction")

_MAX_RETRY_MS = 30_000
"""Maximum time from the first transient failure of a call to the end of its last retry."""
_MAX_CHUNKS = 64
"""Calls for one summary. A history that needs more is not summarised in chunks."""
_STUB_CHARS = 400
_MAX_REJECTED = 2


class SummaryFailed(CompactionError):
    """No summary could be made. ``transient``: a later try may work; ``too_large``: too much for one call."""

    def __init__(self, message: str, *, transient: bool = False, too_large: bool = False, **ids: Any) -> None:
        super().__init__(message, **ids)
        self.transient = transient
        self.too_large = too_large


class Summariser:
    """The writer of summaries, using the cheap model of the provider of ``model``, or that model itself.

    All its calls together, with retries and fallbacks, end within ``time_ms``, however the provider hangs.
    """

    def __init__(
        self,
        host: Host,
        session: Session,
        model: Model,
        policy: Policy,
        waiting: Callable[[str], Awaitable[None]],
        *,
        time_ms: float,
        turn_id: str | None = None,
    ) -> None:
        self._host = host
        self._session, self._turn_id = session, turn_id
        self._policy = policy
        self._waiting = waiting
        own = msgspec.structs.replace(model, variant=None)
        cheap = host.providers.info(model).summariser
        self._models = [own] if cheap is None or cheap == own else [cheap, own]
        self.usage = Usage()
        self._time_ms = time_ms
        self._deadline = host.clock.monotonic_ms() + time_ms
        self._retry_until: float | None = None
        self._refused: set[str] = set()

    async def summarise(self, task: SummaryTask) -> tuple[str, Strategy]:
        """Return a parsed and checked summary, and how it was made.

        One call; if the history is too large, with tool outputs pruned; then in chunks.
        """
        try:
            return await self._summarise_once(task), "summary"
        except SummaryFailed as failure:
            if not failure.too_large:
                raise
            last = failure
        if self._policy.prune_tool_outputs:
            pruned = tuple(_without_outputs(message) for message in task.messages)
            if pruned != task.messages:
                try:
                    return await self._summarise_once(msgspec.structs.replace(task, messages=pruned)), "prune"
                except SummaryFailed as failure:
                    if not failure.too_large:
                        raise
                    last = failure
                    task = msgspec.structs.replace(task, messages=pruned)
        if self._policy.chunked_summarize:
            text = await self._summarise_chunks(task)
            if text is not None:
                return text, "chunked"
        session_id = self._session.id
        raise SummaryFailed(
            f"{last}: prune its tool outputs, branch from a later message, or start a new session",
            too_large=True,
            session_id=session_id,
            ways=ways_out(session_id, None),
        )

    @property
    def model(self) -> Model:
        """The model that wrote the summary."""
        return self._models[0]

    async def _summarise_chunks(self, task: SummaryTask) -> str | None:
        """Summarise chunk by chunk, each call including the previous summary. None if chunks gain nothing."""
        overhead = estimate_tokens(len(self._request_text("", task))) + task.summary_tokens
        # At least two chunks, as one was too large.
        whole = estimate_tokens(len(await go_through(task.messages, history_text, task.messages)))
        chunk_tokens = min(self._history_tokens(task) - overhead, -(-whole // 2))
        text = task.previous
        while chunk_tokens > task.summary_tokens // 4:
            chunks = await go_through(task.messages, chunks_of, task.messages, chunk_tokens)
            if len(chunks) > _MAX_CHUNKS:
                return None
            try:
                for chunk in chunks:
                    part = msgspec.structs.replace(task, messages=tuple(chunk), previous=text)
                    text = await self._summarise_once(part, sized=False)
                return text
            except SummaryFailed as failure:
                if not failure.too_large:
                    raise
                # The window is smaller than declared. Start over with chunks of half the size.
                chunk_tokens, text = chunk_tokens // 2, task.previous
        return None

    def _history_tokens(self, task: SummaryTask) -> int:
        """Return the tokens that the history may take in one call."""
        info = self._host.providers.info(self._models[0])
        return info.window - min(task.summary_tokens, info.max_output)

    def _request_text(self, history: str, task: SummaryTask) -> str:
        """Return the request text for the summariser."""
        return request_text(
            history,
            previous=task.previous,
            focus=task.focus,
            directives=task.directives,
            summary_tokens=task.summary_tokens,
            prompts=self._policy.prompts,
        )

    async def _summarise_once(self, task: SummaryTask, *, sized: bool = True) -> str:
        """Make one summary, with retries: after transient failures, and once after a rejected answer."""
        text = self._request_text(await go_through(task.messages, history_text, task.messages), task)
        if sized and estimate_tokens(len(text)) > self._history_tokens(task):
            raise SummaryFailed("the history is larger than the summariser's window", too_large=True)
        if text in self._refused:
            raise SummaryFailed("the summariser has already refused this text as too large", too_large=True)
        attempt, rejected = 1, 0
        self._retry_until = None
        while True:
            try:
                return _parse_and_check(await self._call(text, task), task)
            except SummaryRejected as error:
                rejected += 1
                log.warning("a summary was rejected: %s", error)
                if rejected >= _MAX_REJECTED:
                    raise SummaryFailed(f"the summariser's answer is not a summary: {error}") from error
            except ProviderFailure as error:
                if error.kind == "overflow":
                    self._refused.add(text)
                    raise SummaryFailed(str(error), too_large=True) from error
                if error.kind != "transient":
                    if len(self._models) > 1:
                        # The cheap model is not available with this key; the session's own model is.
                        log.warning("%s cannot summarise: %s", self._models.pop(0), error)
                        continue
                    raise SummaryFailed(f"the summariser failed: {error}") from error
                await self._wait_after(error, attempt)
                attempt += 1

    async def _wait_after(self, error: ProviderFailure, attempt: int) -> None:
        """Wait before a retry; raise after too many tries, or if the turn would have to wait too long."""
        wait = delay_ms(error, attempt, self._host.chance()) if attempt <= self._policy.retry_on_transient else None
        now = self._host.clock.monotonic_ms()
        if self._retry_until is None:
            self._retry_until = min(now + _MAX_RETRY_MS, self._deadline)
        if wait is None or now + wait >= self._retry_until:
            raise SummaryFailed(f"the summariser failed: {error}", transient=True) from error
        log.info("session %s: a summary failed and is retried: %s", self._session.id, error)
        await self._waiting(f"summarising failed; retrying in {max(1, round(wait / 1000))} s")
        await self._host.clock.sleep(wait)

    async def _call(self, text: str, task: SummaryTask) -> str:
        # The user may define their own summariser; a project may not.
        agent = (await asyncio.to_thread(self._host.agents, None, None)).get_internal("summary")
        request = ModelRequest(
            model=self._models[0],
            # A preset's own prompt replaces clew's, never the user's.
            system=(agent.source == "builtin" and system_prompt(self._policy.prompts)) or agent.prompt,
            messages=[Message("msg_summary", "user", [text_part(text)], {})],
            max_output_tokens=task.summary_tokens,
            temperature=self._policy.temperature,
        )
        # A retry may only use the remaining time, and so may each chunk.
        until = self._deadline if self._retry_until is None else self._retry_until
        timeout_ms = until - self._host.clock.monotonic_ms()
        if timeout_ms <= 0:
            raise SummaryFailed(f"there was no summary within {self._time_ms / 1000:g} s", transient=True)
        try:
            answer = ask_text(self._host, self._session, "summary", request, turn_id=self._turn_id)
            reading = await run_until(answer, after(self._host.clock, timeout_ms), grace_s=1)
            if not reading.done() or reading.cancelled():
                raise ProviderFailure("the summariser took too long", kind="transient")
            text, usage = reading.result()
        except ProviderFailure:
            raise
        except HookRefused as error:
            # A hook would refuse the same text for another model.
            raise SummaryFailed(str(error)) from error
        except ClewError as error:
            raise ProviderFailure(str(error), kind="unknown") from error
        except Exception as error:  # a bug of a provider must not fail the turn
            raise ProviderFailure(f"{type(error).__name__}: {error}", kind="unknown") from error
        self.usage = self.usage + usage
        return text


def _parse_and_check(answer: str, task: SummaryTask) -> str:
    """Return the summary in an answer. One far over its limit would not free enough of the window."""
    text = parse_summary(answer)
    tokens = estimate_tokens(len(text))
    # Half as much more is accepted: our estimate differs from the provider's count.
    if tokens > task.summary_tokens * 3 // 2:
        raise SummaryRejected(f"it has about {tokens} tokens; the limit is {task.summary_tokens}")
    return text


def _without_outputs(message: Message) -> Message:
    """Return the message with its longer tool outputs as stubs."""
    if message.role != "assistant":
        return message
    parts = []
    for index, part in enumerate(message.parts):
        text = output_text(part)
        if text is not None and len(text) > _STUB_CHARS:
            stub = Pruned(0, message.id, index, estimate_tokens(len(text)), 0, 0)
            part = prune_part(part, stub)
        parts.append(part)
    return message if parts == message.parts else msgspec.structs.replace(message, parts=parts)
