"""Model calls: each is written down when it is asked, kept up with what its provider says, and closed once.

One way for all of them, answers, titles and summaries, so that a call that fails or is broken off is never left out of
what was spent. What the provider has not said is estimated, and marked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, Literal

import msgspec

from clew.compaction.budget import estimate_tokens, with_rest
from clew.errors import ClewError, ModelFailed, RowUndecodable
from clew.providers.base import ModelRequest, StepEnd, UsageSaid
from clew.providers.reply import bounded
from clew.runtime.host import Host
from clew.store.base import Store
from clew.store.unit import (
    STORE_WIDE,
    BookUsage,
    EpochIs,
    Outcome,
    PutCall,
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
_NOTED_CHARS: Final = 1024
Cost = Callable[[Model, Usage], float | None]
NO_END: Final = "the model's stream ended without saying how"


class AskedCall:
    """A model call from the moment it is asked. ``keep`` is given its row then, and whenever much more is known.

    Some providers count with every word. What was counted since is in the words, which are kept anyway.
    """

    def __init__(self, host: Host, call: ModelCall, keep: Callable[[ModelCall], object]) -> None:
        self._host = host
        self._keep = keep
        self._guess = call.usage
        self._said = False
        self._kept: Usage | None = None
        self._call = call
        self._request: ModelRequest | None = None
        self._note(call.usage)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[c.Chunk | StepEnd, None]:
        """What the model says, up to the limit of a reply, without what the provider says of its usage."""
        self._request = request
        provider = self._host.providers.get(request.model.provider_id)
        answer = bounded(provider.stream(request), self._host.config.max_reply_bytes)
        try:
            async for item in answer:
                if not isinstance(item, c.DELTAS) and isinstance(item, UsageSaid):
                    self._said = self._said or item.usage.total > 0
                    self._note(_with_guess(item.usage, self._guess))
                    continue
                if self._call.first_chunk_at is None:
                    self._call = msgspec.structs.replace(self._call, first_chunk_at=self._host.clock.now_ms())
                yield item
        finally:
            # An abort that comes now must not leave the connection open.
            await asyncio.shield(answer.aclose())

    def note(self, parts: Sequence[Part]) -> None:
        """Keep how far it got."""
        self._note(with_rest(self._call.usage, parts))

    def complete(self, end: StepEnd, parts: Sequence[Part]) -> ModelCall:
        """Its row, now that the model has said all: ``parts`` is what. Where nobody counted, it is estimated."""
        usage = end.usage if end.is_counted else with_rest(_with_guess(end.usage, self._guess), parts)
        call = self._closed("completed", usage, estimated=not end.is_counted)
        self._tell(None, parts, end)
        return call

    def break_off(self, failure: BaseException | None, parts: Sequence[Part]) -> ModelCall:
        """Its row, now that nothing more will come: ``failure`` says why, without one it was an abort.

        A call that was refused before anything came of it has cost nothing, and neither has one that was not sent yet.
        """
        begun = self._said or self._call.first_chunk_at is not None
        if self._request is None or (failure is not None and not begun):
            call = self._closed("aborted" if failure is None else "failed", Usage(), estimated=False)
        else:
            ended: CallEnd = "aborted" if failure is None else "cut"
            call = self._closed(ended, with_rest(self._call.usage, parts), estimated=True)
        self._tell(failure, parts)
        return call

    def _note(self, usage: Usage) -> None:
        cost = self._host.providers.cost(self._call.model, usage) or 0.0
        self._call = msgspec.structs.replace(self._call, usage=usage, cost_usd=cost, estimated=True)
        if self._kept is None or _is_news(usage, self._kept):
            self._kept = usage
            self._keep(self._call)

    def _closed(self, ended: CallEnd, usage: Usage, *, estimated: bool) -> ModelCall:
        self._call = msgspec.structs.replace(
            self._call,
            usage=usage,
            cost_usd=self._host.providers.cost(self._call.model, usage) or 0.0,
            ended=ended,
            ended_at=self._host.clock.now_ms(),
            estimated=estimated,
        )
        return self._call

    def _tell(self, failure: BaseException | None, parts: Sequence[Part], end: StepEnd | None = None) -> None:
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
    """Return the text a model answers to a request that is no step of a turn, and its usage.

    ``before_model_call`` hooks see the request first. Raises ``HookRefused`` when one of them refuses the call.
    """
    request = msgspec.structs.replace(request, once=True, purpose=purpose)
    request = await host.hooks.change("before_model_call", request, session, turn_id)

    def keep(call: ModelCall) -> asyncio.Future[Outcome] | None:
        def written(done: asyncio.Future[Outcome]) -> None:
            if done.cancelled() or done.exception() is not None:
                log.warning("model call %s could not be written down", call.id)
            elif isinstance(done.result(), Refused) and call.session_id is not None:
                # The session was deleted meanwhile. What it cost was spent all the same.
                keep(without_session(call))

        try:
            stored = host.store.submit(Unit(call.session_id or STORE_WIDE, (PutCall(call),)))
        except ClewError:
            # A store that takes no more leaves the row to whoever opens it next.
            return None
        stored.add_done_callback(written)
        return stored

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
    host.providers.get(request.model.provider_id)  # one that cannot be asked was not asked
    asked = AskedCall(host, row, keep)
    said: list[str] = []
    thought: list[str] = []
    came, noted = 0, _NOTED_CHARS // 2

    def parts() -> list[Part]:
        return [text_part("".join(said)), {"type": "reasoning", "text": "".join(thought)}]

    try:
        async with contextlib.aclosing(asked.stream(request)) as stream:
            async for item in stream:
                if isinstance(item, StepEnd):
                    stored = keep(asked.complete(item, parts()))
                    if stored is not None:
                        # What was paid is on disk before anything is made of what was bought.
                        await asyncio.wait([stored])
                    host.hooks.observe("after_model_call", (request, item), session, turn_id)
                    return "".join(said), item.usage
                if isinstance(item, c.TextDelta | c.ReasoningDelta):
                    (said if isinstance(item, c.TextDelta) else thought).append(item.delta)
                    came += len(item.delta)
                if came >= 2 * noted:
                    # Nothing else of it is stored: the row tells how far it got, each time that has doubled.
                    noted = came
                    asked.note(parts())
        raise ModelFailed(NO_END)
    except BaseException as failure:
        keep(asked.break_off(failure if isinstance(failure, Exception) else None, parts()))
        raise


async def end_interrupted(store: Store, cost: Cost | None, now: int, session_id: str | None = None) -> None:
    """Close the calls that a process which died, or a run that could not store its end, left open.

    Each is booked as its row and its message tell, once. Of one session only answers are: nobody else asks them, while
    a title may be under way. Without a ``session_id`` no process but this one may have the store.
    """
    for call in await store.open_model_calls(session_id):
        if call.session_id is None or (session_id is not None and call.purpose != "answer"):
            continue
        message = None
        if call.message_id is not None:
            try:
                message = await store.find_message(call.session_id, call.message_id)
            except RowUndecodable as error:
                # Of what cannot be read nothing is counted; the row has what was known when it was written.
                log.error("message %s, which a model call broke off in, cannot be read: %s", call.message_id, error)
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
        # Taken for nobody: a run that was thought dead and is not must not book the same call again.
        writes: list[Write] = [SetEpoch(state.epoch + 1), PutCall(closed)]
        if message is not None and not message.is_unreadable:
            writes.append(BookUsage(message.id, closed.usage, closed.cost_usd, now))
        await store.commit(Unit(call.session_id, tuple(writes), (EpochIs(state.epoch),), sync="power"))


def newest_step(parts: Sequence[Part]) -> Sequence[Part]:
    """What came of the newest step of a message."""
    starts = steps_in(parts)
    return parts[starts[-1] :] if starts else parts


def _is_news(usage: Usage, kept: Usage) -> bool:
    """Whether the input was counted anew, or a quarter has come to what the model has said."""
    sent = [(one.input, one.cache_read, one.cache_write) for one in (usage, kept)]
    return sent[0] != sent[1] or 4 * (usage.output + usage.reasoning) > 5 * (kept.output + kept.reasoning)


def _with_guess(said: Usage, guess: Usage) -> Usage:
    """What a provider said, with what was guessed of the input where it said nothing about that."""
    known = said.input or said.cache_read or said.cache_write
    return said if known else msgspec.structs.replace(said, input=guess.input)
