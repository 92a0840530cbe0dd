"""The loop: assemble, call, record, run what was asked for, and again, until nothing is asked for.

It goes by the presence of calls, not by what the provider says the reason for stopping was. Providers, tools, agents
and rules are values to it; it has no branch for any one of them. It does not settle the turn and does not know who
watches: it tells its run how it ended, or raises.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from clew.compaction.context import Context
from clew.errors import ModelFailed
from clew.failpoints import failpoint
from clew.providers.base import ModelRequest, ProviderFailure, StepEnd, UsageSaid
from clew.providers.evidence import encode_tools, request_digest, tools_digest
from clew.providers.reply import CUT, bounded
from clew.providers.retry import delay_ms
from clew.runtime.calls import MAX_CALLS, TOO_MANY, Call, Caller, Verdict
from clew.runtime.files import with_files, without_older_files
from clew.runtime.host import Host
from clew.runtime.progress import Progress
from clew.runtime.recorder import Recorder
from clew.runtime.room import Room
from clew.runtime.setting import Setting, prompt_writes
from clew.transcript import chunk as c
from clew.transcript.doom import Pattern, made_calls, repetition_of
from clew.transcript.message import Message
from clew.transcript.turn import Step
from clew.transcript.wait import Wait, digest_call

__all__ = ["End", "Loop"]

log = logging.getLogger("clew.files")

_SAID: Final[dict[str, Literal["length", "content_filter", "error"]]] = {
    "length": "length",
    "content-filter": "content_filter",
    "error": "error",
}
"""Reasons of the model's own that leave an answer short of its end."""


class End(msgspec.Struct, frozen=True):
    """How the loop ended. ``waiting`` names what a human is asked; ``stopped`` why it ended before it was done."""

    reason: Literal["done", "length", "content_filter", "error", "waiting", "step_limit", "warned", "doom"]
    waits: tuple[Wait, ...] = ()


class Loop(msgspec.Struct):
    """The steps of one run on one assistant message. ``step`` numbers the next one, ``budget`` are left."""

    host: Host
    setting: Setting
    recorder: Recorder
    caller: Caller
    progress: Progress
    room: Room
    turn_id: str
    step: int
    budget: int
    warned: Pattern | None
    sent: dict[str, Any] = {}
    sent_at: int = 0
    kept_prompt: bool = False
    older_files: bool = True

    async def run(self) -> End:
        """Step after step until nothing is asked for, a human is, or the budget is used up."""
        while self.budget > 0:
            end = await self._one_step()
            if end is not None:
                return end
        return End("step_limit")

    async def land(self, calls: Sequence[Call], denied: Sequence[str]) -> None:
        """The results a waiting step still owes, now that its requests are answered."""
        for call_id in denied:
            await self.recorder.send(c.ToolOutputDenied(tool_call_id=call_id))
        async for result in self.caller.run(calls):
            await self.recorder.send(result)

    async def _one_step(self) -> End | None:
        await self.recorder.send(c.StartStep())
        failpoint("run.before_model_call")
        calls, asked, end = await self._call_model()
        verdicts = [await self.caller.judge(call) for call in calls[:MAX_CALLS]]
        for verdict in verdicts:
            if verdict.action == "deny":
                await self.recorder.send(c.ToolOutputError(tool_call_id=verdict.call.id, error_text=verdict.why))
        for call in calls[MAX_CALLS:]:
            await self.recorder.send(c.ToolOutputError(tool_call_id=call.id, error_text=TOO_MANY))
        failpoint("run.before_tools")
        async for result in self.caller.run([v.call for v in verdicts if v.action == "run"]):
            failpoint("run.tool_done")
            await self.recorder.send(result)
        waits = await self._ask(verdicts)
        await self.recorder.send(c.FinishStep())
        failpoint("run.before_step_end")
        kept = () if self.kept_prompt else prompt_writes(self.setting, self.host.clock.now_ms())
        await self.recorder.end_step(self._booked(end), *kept)
        self.kept_prompt = True
        self.step += 1
        self.budget -= 1
        if waits:
            return End("waiting", waits)
        if not asked:
            return End(_SAID.get(end.finish_reason, "done"))
        repeating = repetition_of(made_calls(self.recorder.fold.parts), self.warned)
        return None if repeating == "fine" else End("doom" if repeating == "doom" else "warned")

    async def _ask(self, verdicts: Sequence[Verdict]) -> tuple[Wait, ...]:
        """Put the requests into the stream; they come last in their step, after the results of allowed calls."""
        waits: list[Wait] = []
        session = self.setting.session
        folder = str(self.setting.workspace) if self.setting.workspace else None
        for verdict in verdicts:
            call = verdict.call
            if verdict.action not in ("ask", "question"):
                continue
            digest = digest_call(session.id, call.id, call.tool.name, call.args, folder)
            since = self.host.clock.now_ms()
            if verdict.action == "question":
                waits.append(Wait(call.id, call.tool.name, "question", since, digest))
                continue
            approval_id = self.host.mint.approval()
            request = c.ToolApprovalRequest(
                approval_id=approval_id,
                tool_call_id=call.id,
                approval_descriptor={**verdict.descriptor, "since": since},
                signature=digest,
            )
            await self.recorder.send(request)
            waits.append(Wait(call.id, call.tool.name, "approval", since, digest, approval_id))
        return tuple(waits)

    # The model call

    async def _call_model(self) -> tuple[list[Call], bool, StepEnd]:
        """One call, tried again only while nothing of it was recorded: v6 cannot take a chunk back."""
        inside = self.step > 0
        request = await self._prepared(await self.room.fit(self._live(), inside=inside, flush=self.recorder.flush))
        attempt, overflowed = 1, False
        while True:
            before = self.recorder.fold.part_count
            try:
                result = await self._stream(request)
            except ProviderFailure as failure:
                untouched = self.recorder.fold.part_count == before
                if untouched and failure.kind == "overflow":
                    less = await self.room.overflowed(
                        self._live(), inside=inside, flush=self.recorder.flush, again=overflowed
                    )
                    overflowed = True
                    request = await self._prepared(less)
                    continue
                # What a provider minds in a file, only it knows. An old one must not make every later call fail.
                plain = without_older_files(request.messages) if untouched and failure.kind == "invalid" else None
                if plain is not None:
                    log.warning("%s refused a request with files of earlier turns: %s", request.model, failure)
                    self.older_files, request = False, msgspec.structs.replace(request, messages=plain)
                    continue
                wait = delay_ms(failure, attempt, self.host.chance()) if untouched else None
                if wait is None:
                    raise
                attempt += 1
                said = f"{failure}; trying again in {max(1, round(wait / 1000))} s"
                await self.progress.retrying(attempt, said, self.host.clock.now_ms() + round(wait))
                await self.host.clock.sleep(wait)
                await self.progress.running()
            else:
                self.room.note(result[2].usage, self.recorder.message.id, self.recorder.fold.part_count)
                self.host.hooks.observe("after_model_call", (request, result[2]))
                return result

    def _live(self) -> Message:
        """The message so far, with the start of the step that begins now."""
        return Message(self.recorder.message.id, "assistant", self.recorder.fold.parts, {"turn_id": self.turn_id})

    async def _prepared(self, context: Context) -> ModelRequest:
        """The request as hooks leave it, files put in; what it was is kept with the step as a digest."""
        setting = self.setting
        asked = ModelRequest(
            model=setting.model,
            system=setting.system_prompt.text,
            messages=list(context.messages),
            tools=setting.schemas,
            # A guess about an unknown model must not cut its answers short.
            max_output_tokens=setting.info.max_output if setting.info.output_known else None,
            temperature=setting.agent.temperature,
        )
        request: ModelRequest = await self.host.hooks.change("before_model_call", asked)
        # A step begins when it is asked for: a compaction made for it comes before it.
        self.sent_at = self.host.clock.now_ms()
        self.sent = {
            "request": request_digest(request),
            "tools": tools_digest(encode_tools(request.tools)),
            "view": [context.compaction_depth, context.prune_seq, len(context.messages)],
            "limits": [request.max_output_tokens, request.temperature],
        }
        info = setting.info if request.model == setting.model else self.host.providers.info(request.model)
        given = await with_files(self.host.store, request.messages, info)
        given = given if self.older_files else without_older_files(given) or given
        return msgspec.structs.replace(request, messages=given)

    async def _stream(self, request: ModelRequest) -> tuple[list[Call], bool, StepEnd]:
        calls: list[Call] = []
        asked = False
        provider = self.host.providers.get(request.model.provider_id)
        stream = bounded(provider.stream(request), self.host.config.max_reply_bytes)
        send = self.recorder.send
        try:
            async for item in stream:
                if isinstance(item, StepEnd):
                    # Of a reply that was cut off nothing is run: its calls have ended already.
                    return ([], False, item) if CUT in item.data else (calls, asked, item)
                if isinstance(item, UsageSaid):
                    continue
                if isinstance(item, c.ToolInputAvailable) and item.provider_executed is not True:
                    asked = True
                    item, call = await self.caller.admit(item)
                    if call is not None:
                        calls.append(call)
                elif isinstance(item, c.ToolInputError):
                    asked = True
                await send(item)
        finally:
            # An abort that comes now must not leave the connection open.
            await asyncio.shield(stream.aclose())
        raise ModelFailed("the model's stream ended without saying how")

    def _booked(self, end: StepEnd) -> Step:
        model = self.setting.model
        return Step(
            turn_id=self.turn_id,
            index=self.step,
            message_id=self.recorder.message.id,
            usage=end.usage,
            model=model,
            started_at=self.sent_at,
            finished_at=self.host.clock.now_ms(),
            finish_reason=end.finish_reason,
            prompt_digest=self.setting.system_prompt.digest,
            cost_usd=self.host.providers.cost(model, end.usage) or 0.0,
            data={**end.data, "prompt": self.setting.system_prompt.outline, **self.sent},
        )
