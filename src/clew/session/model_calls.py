"""Model calls: each is recorded before it is sent, updated as its provider reports usage, and closed once.

Answers, titles and summaries all use this, so a call that fails or is aborted is never missing from what was spent.
Usage that the provider does not report is estimated and marked as such.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, Literal

import msgspec

from clew.compaction.budget import estimate_tokens, with_rest
from clew.errors import ClewError, ModelFailed, RowUndecodable
from clew.providers.base import ModelRequest, StepEnd, UsageUpdate
from clew.providers.reply import bounded
from clew.session.host import Host
from clew.store.base import Store
from clew.store.unit import (
    STORE_WIDE,
    EpochIs,
    Outcome,
    PutCall,
    RecordUsage,
    Refused,
    SetEpoch,
    Unit,
    Write,
)
from clew.transcript import chunk as c
from clew.transcript.model_call import CallEnd, ModelCall, without_session
from clew.transcript.part import Part, steps_in, text_part
from clew.transcript.session import Model, Session
from clew.transcript.usage import Usage

__all__ = ["NO_END", "AskedCall", "Cost", "ask_text", "end_interrupted", "newest_step"]

log = logging.getLogger("clew.model_calls")
_NOTE_EVERY_CHARS: Final = 1024
Cost = Callable[[Model, Usage], float | None]
NO_END: Final = "the model's stream ended without a finish reason"


class AskedCall:
    """A model call and its row. ``keep`` is called with the row first, and again whenever much more is known.

    Some providers report usage with every chunk. Output since the last row can be estimated from the stored text.
    """

    def __init__(self, host: Host, call: ModelCall, keep: Callable[[ModelCall], object]) -> None:
        self._host = host
        self._store_row = keep
        self._estimate = call.usage
        self._has_usage = False
        self._stored_usage: Usage | None = None
        self._call = call
        self._request: ModelRequest | None = None
        self._update(call.usage)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        """Yield the model's reply up to the size limit, without its usage updates."""
        self._request = request
        provider = self._host.providers.get(request.model.provider_id)
        answer = bounded(provider.stream(request), self._host.config.max_reply_bytes)
        try:
            async for item in answer:
                if not isinstance(item, c.DELTAS) and isinstance(item, UsageUpdate):
                    self._has_usage = self._has_usage or item.usage.total > 0
                    self._update(_with_estimated_input(item.usage, self._estimate))
                    continue
                if self._call.first_chunk_at is None:
                    self._call = msgspec.structs.replace(self._call, first_chunk_at=self._host.clock.now_ms())
                yield item
        finally:
            # An abort at this point must not leave the connection open.
            await asyncio.shield(answer.aclose())

    def note(self, parts: Sequence[Part]) -> None:
        """Record the usage so far, estimated from ``parts``."""
        self._update(with_rest(self._call.usage, parts))

    def complete(self, end: StepEnd, parts: Sequence[Part]) -> ModelCall:
        """Close the row of a complete reply whose content is ``parts``. Usage that was not reported is estimated."""
        usage = end.usage if end.is_counted else with_rest(_with_estimated_input(end.usage, self._estimate), parts)
        call = self._close("completed", usage, estimated=not end.is_counted)
        self._trace(None, parts, end)
        return call

    def abandon_step(self, failure: BaseException | None, parts: Sequence[Part]) -> ModelCall:
        """Close the row of a call that gets no more output, because of ``failure`` or, without one, an abort.

        A call that was refused before it produced anything, or was never sent, costs nothing.
        """
        begun = self._has_usage or self._call.first_chunk_at is not None
        if self._request is None or (failure is not None and not begun):
            call = self._close("aborted" if failure is None else "failed", Usage(), estimated=False)
        else:
            ended: CallEnd = "aborted" if failure is None else "cut"
            call = self._close(ended, with_rest(self._call.usage, parts), estimated=True)
        self._trace(failure, parts)
        return call

    def _update(self, usage: Usage) -> None:
        cost = self._host.providers.cost(self._call.model, usage) or 0.0
        self._call = msgspec.structs.replace(self._call, usage=usage, cost_usd=cost, estimated=True)
        if self._stored_usage is None or _is_significant(usage, self._stored_usage):
            self._stored_usage = usage
            self._store_row(self._call)

    def _close(self, ended: CallEnd, usage: Usage, *, estimated: bool) -> ModelCall:
        self._call = msgspec.structs.replace(
            self._call,
            usage=usage,
            cost_usd=self._host.providers.cost(self._call.model, usage) or 0.0,
            ended=ended,
            ended_at=self._host.clock.now_ms(),
            estimated=estimated,
        )
        return self._call

    def _trace(self, failure: BaseException | None, parts: Sequence[Part], end: StepEnd | None = None) -> None:
        sent = self._request.messages if self._request is not None else ()
        kind = self._host.find_kind(self._call.model)
        reason, answered = (None, {}) if end is None else (end.finish_reason, end.data)
        self._host.telemetry.called(self._call, failure, sent, parts, reason, answered=answered, kind=kind)


async def ask_text(
    host: Host,
    session: Session,
    purpose: Literal["title", "summary"],
    request: ModelRequest,
    *,
    turn_id: str | None = None,
) -> tuple[str, Usage]:
    """Return the text of a model's answer to a request that is no step of a turn, and its usage.

    ``before_model_call`` hooks see the request first. Raise ``HookRefused`` when one of them refuses it.
    """
    request = msgspec.structs.replace(request, once=True, purpose=purpose)
    request = await host.hooks.change("before_model_call", request, session, turn_id)

    chars = len(request.system) + sum(len(text) for message in request.messages for text in message.texts)
    row = ModelCall(
        id=host.mint.call(),
        purpose=purpose,
        model=request.model,
        asked_at=host.clock.now_ms(),
        session_id=session.id,
        turn_id=turn_id,
        usage=Usage(input=estimate_tokens(chars)),
        workspace=session.workspace_root,
        owner=session.owner,
    )
    host.providers.get(request.model.provider_id)  # raises for an unknown provider, before there is a row
    asked = AskedCall(host, row, functools.partial(_store_row, host))
    text: list[str] = []
    reasoning: list[str] = []
    received, noted = 0, _NOTE_EVERY_CHARS // 2

    def parts() -> list[Part]:
        return [text_part("".join(text)), {"type": "reasoning", "text": "".join(reasoning)}]

    try:
        async with contextlib.aclosing(asked.stream(request)) as stream:
            async for item in stream:
                if isinstance(item, StepEnd):
                    stored = _store_row(host, asked.complete(item, parts()))
                    if stored is not None:
                        # The cost is on disk before the text is used.
                        await asyncio.wait([stored])
                    host.hooks.observe("after_model_call", (request, item), session, turn_id)
                    return "".join(text), item.usage
                if isinstance(item, c.TextDelta | c.ReasoningDelta):
                    (text if isinstance(item, c.TextDelta) else reasoning).append(item.delta)
                    received += len(item.delta)
                if received >= 2 * noted:
                    # The text is not stored, so the row records the progress each time it has doubled.
                    noted = received
                    asked.note(parts())
        raise ModelFailed(NO_END)
    except BaseException as failure:
        _store_row(host, asked.abandon_step(failure if isinstance(failure, Exception) else None, parts()))
        raise


def _store_row(host: Host, call: ModelCall) -> asyncio.Future[Outcome] | None:
    """Store the row of a call in the background. Return None if the store is closed."""

    def written(done: asyncio.Future[Outcome]) -> None:
        if done.cancelled() or done.exception() is not None:
            log.warning("could not record model call %s", call.id)
        elif isinstance(done.result(), Refused) and call.session_id is not None:
            # The session was deleted meanwhile, but the cost was still incurred.
            _store_row(host, without_session(call))

    try:
        stored = host.store.submit(Unit(call.session_id or STORE_WIDE, (PutCall(call),)))
    except ClewError:
        # A closed store leaves the row to the next process that opens it.
        return None
    stored.add_done_callback(written)
    return stored


async def end_interrupted(store: Store, cost: Cost | None, now: int, session_id: str | None = None) -> None:
    """Close the calls left open by a process that died, or by a run that could not store its end.

    Each is charged once, as estimated from its row and message. With a ``session_id`` only answers are closed: only the
    session's own run makes those, while a title may be in progress. Without one, this process must own the store.
    """
    for call in await store.open_model_calls(session_id):
        if call.session_id is None or (session_id is not None and call.purpose != "answer"):
            continue
        message = None
        if call.message_id is not None:
            try:
                message = await store.find_message(call.session_id, call.message_id)
            except RowUndecodable as error:
                # Damaged content counts nothing; the row has the usage known when it was written.
                log.error("cannot read message %s of an interrupted model call: %s", call.message_id, error)
        usage = with_rest(call.usage, newest_step([part.data for part in message.parts] if message else []))
        spent = cost(call.model, usage) if cost is not None else None
        closed = msgspec.structs.replace(
            call,
            usage=usage,
            cost_usd=call.cost_usd if spent is None else spent,
            ended="interrupted",
            ended_at=now,
            estimated=True,
        )
        state = await store.load_state(call.session_id)
        # The epoch is raised: a run that was thought dead but is alive must not charge the same call again.
        writes: list[Write] = [SetEpoch(state.epoch + 1), PutCall(closed)]
        if message is not None and not message.is_unreadable:
            writes.append(RecordUsage(message.id, closed.usage, closed.cost_usd, now))
        await store.commit(Unit(call.session_id, tuple(writes), (EpochIs(state.epoch),), sync="power"))


def newest_step(parts: Sequence[Part]) -> Sequence[Part]:
    """Return the parts of the newest step of a message."""
    starts = steps_in(parts)
    return parts[starts[-1] :] if starts else parts


def _is_significant(usage: Usage, stored_usage: Usage) -> bool:
    """Return whether the input usage has changed or the output has grown by a quarter."""
    now, before = ((sums.input, sums.cache_read, sums.cache_write) for sums in (usage, stored_usage))
    return now != before or 4 * (usage.output + usage.reasoning) > 5 * (stored_usage.output + stored_usage.reasoning)


def _with_estimated_input(reported: Usage, estimate: Usage) -> Usage:
    """Return a provider's usage, with the estimated input if it reported none."""
    is_known = reported.input or reported.cache_read or reported.cache_write
    return reported if is_known else msgspec.structs.replace(reported, input=estimate.input)
