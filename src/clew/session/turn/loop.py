"""The agent loop: assemble the request, call the model, record, run its tool calls, and repeat until there are none.

It continues as long as there are calls, whatever finish reason the provider reports. Providers, tools, agents and rules
are values to it; it has no special case for any of them. It does not settle the turn and knows no viewers: it returns
to its run how it ended, or raises.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec

from clew.compaction.context import Context
from clew.compaction.policy import session_policy
from clew.errors import ModelFailed, StorageFull
from clew.failpoints import failpoint
from clew.providers.base import ModelRequest, ProviderFailure, StepEnd
from clew.providers.evidence import encode_tools, request_digest, tools_digest
from clew.providers.reply import CUT
from clew.providers.retry import delay_ms
from clew.session.context.context_fit import ContextFitter
from clew.session.host import Host
from clew.session.model_calls import NO_END, AskedCall, newest_step
from clew.session.progress import Progress
from clew.session.prompt.files import with_files, without_older_files
from clew.session.prompt.turn_config import TurnConfig, prompt_writes
from clew.session.snapshots import Snapshots
from clew.session.turn.calls import MAX_CALLS, TOO_MANY, Call, Caller, Verdict
from clew.session.turn.mcp_tools import serve_tools
from clew.session.turn.recorder import Recorder
from clew.session.turn.structured_output import MAX_REFUSED, NO_ANSWER, OUTPUT_DATA, StructuredOutput, refused_answers
from clew.store.unit import FinishStep, PutBlob, PutCall, RecordStep, RecordUsage
from clew.transcript import chunk as c
from clew.transcript.message import Message, copied
from clew.transcript.model_call import ModelCall
from clew.transcript.part import call_id_of, tool_name
from clew.transcript.repetition import Pattern, made_calls, repetition_of
from clew.transcript.turn import Step
from clew.transcript.usage import Usage
from clew.transcript.wait import Wait, digest_call

__all__ = ["End", "Loop"]

log = logging.getLogger("clew.files")

_FINISH_REASONS: Final[dict[str, Literal["length", "content_filter", "error", "other"]]] = {
    "length": "length",
    "content-filter": "content_filter",
    "error": "error",
    "other": "other",
}
"""Finish reasons of an incomplete answer; an unknown reason does not count as complete."""


class End(msgspec.Struct, frozen=True):
    """The end of the loop. ``waits`` are the requests to a human; ``reason`` says why it ended."""

    reason: Literal[
        "done", "length", "content_filter", "error", "other", "waiting", "step_limit", "warned", "doom", "no_form"
    ]
    waits: tuple[Wait, ...] = ()


class Loop(msgspec.Struct):
    """The steps of one run on one assistant message. ``step`` is the next one's index, ``budget`` the number left."""

    host: Host
    config: TurnConfig
    recorder: Recorder
    caller: Caller
    progress: Progress
    fitter: ContextFitter
    snapshots: Snapshots
    turn_id: str
    step: int
    budget: int
    warned: Pattern | None
    sent: dict[str, Any] = {}
    size: int = 0
    prompt_stored: bool = False
    older_files: bool = True
    form_by_tool: bool = False
    request: ModelRequest | None = None
    asked: AskedCall | None = None
    booked: ModelCall | None = None
    tools_from: int | None = None

    async def run(self) -> End:
        """Run steps until there is nothing left to do, a human must answer, or the step limit is reached."""
        while self.budget > 0:
            end = await self._one_step()
            if end is not None:
                return end
        return End("step_limit")

    async def run_answered_calls(self, calls: Sequence[Call], denied: Sequence[str]) -> None:
        """Record the results that a waiting step lacks, now that its requests are answered."""
        for call_id in denied:
            await self.recorder.send(c.ToolOutputDenied(tool_call_id=call_id))
        began = self.host.clock.now_ms()
        await self._run_calls(calls, self.step - 1)
        for call in await self.host.store.load_calls(self.config.session.id) if calls else ():
            if (call.turn_id, call.step, call.ended) == (self.turn_id, self.step - 1, "completed"):
                spent = call.tools_ms + self.host.clock.now_ms() - began
                self.recorder.add_to_next_sync(PutCall(msgspec.structs.replace(call, tools_ms=spent)))

    async def _run_calls(self, calls: Sequence[Call], step: int) -> None:
        """Run calls of a step and record their results, with the workspace saved before and after them."""
        tools = [call.tool for call in calls if call.tool is not self.config.form]
        async with self.snapshots.around_calls(self.config.session, self.turn_id, step, tools):
            async for item in self.caller.run(calls):
                failpoint("run.tool_done")
                await self._record_output(item)

    async def _record_output(self, output: c.Chunk | PutBlob) -> None:
        if isinstance(output, PutBlob):
            # Stored before the chunk that names it, and before the request that sends it.
            self.recorder.add_to_next_unit(output)
            await self.recorder.flush_synced(sync="process")
        else:
            await self.recorder.send(output)

    async def finish_calls(self) -> StorageFull | None:
        """Record what the calls give that an abort does not cancel, once all and every subagent have ended; return a
        failure to do so."""
        if self.caller.children:
            self.progress.finishing("waiting for its subagents to stop")
            await asyncio.wait(self.caller.children)
        if unfinished := self.caller.unfinished:
            names = [tool_name(part) for part in self.recorder.fold.parts if call_id_of(part) in unfinished]
            self.progress.finishing(f"waiting for {', '.join(names)}, which cannot be cancelled")
            try:
                for output in await self.caller.finish():
                    await self._record_output(output)
            except StorageFull as full:
                return full
        return None

    async def plan_call(self, context: Context) -> ModelCall:
        """Prepare the first step without calling the model; return the row of its call, which the caller stores."""
        request = self.request = await self._prepare_request(context)
        planned: list[ModelCall] = []
        self._create_call(request, planned.append)
        return planned[0]

    async def _begin_step(self) -> ModelRequest:
        """Start a step and return its model request."""
        served = await serve_tools(self.host, self.config, self.caller.state)
        if served is not self.config:
            self.caller.config = served
            self.fitter.set_config(served)
        self.recorder.write(c.StartStep())
        return await self._prepare_request(
            await self.fitter.fit(self._live(), inside=self.step > 0, flush=self.recorder.flush)
        )

    async def _one_step(self) -> End | None:
        request, self.request = self.request or await self._begin_step(), None
        failpoint("run.before_model_call")
        calls, asked, end = await self._call_model(request)
        if asked:
            # Usage is durable before a tool runs or another call is made, as the run may be aborted or killed there.
            await self.recorder.flush_synced()
        verdicts = [await self.caller.judge(call) for call in calls[:MAX_CALLS]]
        for verdict in verdicts:
            if verdict.action == "deny":
                await self.recorder.send(c.ToolOutputError(tool_call_id=verdict.call.id, error_text=verdict.why))
        for call in calls[MAX_CALLS:]:
            await self.recorder.send(c.ToolOutputError(tool_call_id=call.id, error_text=TOO_MANY))
        failpoint("run.before_tools")
        self.tools_from = self.host.clock.now_ms() if calls else None
        await self._run_calls([v.call for v in verdicts if v.action == "run"], self.step)
        waits = await self._ask(verdicts)
        form = self.config.form
        output = next((call for call in calls if call.tool is form), None)
        if form is not None and output is not None:
            await self.recorder.send(c.Data(name=OUTPUT_DATA, data=form.value_of(output.args)))
        self.recorder.defer_flush()
        await self.recorder.send(c.FinishStep())
        failpoint("run.before_step_end")
        self._finish()
        self.step += 1
        self.budget -= 1
        # The end of the last step is written with the unit that settles the turn or lets it wait: one sync for both.
        if waits:
            return End("waiting", waits)
        if output is not None:
            return End("done")
        if form is not None and refused_answers(self.recorder.fold.parts) >= MAX_REFUSED:
            raise ModelFailed(NO_ANSWER)
        if not asked:
            return End(_FINISH_REASONS.get(end.finish_reason, "done" if form is None else "no_form"))
        # The end of any other step is written with the next call, before which all of it is committed.
        by_result = session_policy(self.host.config, self.config.session).repeats_by_result
        repeating = repetition_of(made_calls(self.recorder.fold.parts, by_result=by_result), self.warned)
        return None if repeating == "fine" else End("doom" if repeating == "doom" else "warned")

    async def _ask(self, verdicts: Sequence[Verdict]) -> tuple[Wait, ...]:
        """Record the requests to a human; they come last in their step, after the results of allowed calls."""
        waits: list[Wait] = []
        session = self.config.session
        folder = str(self.config.workspace) if self.config.workspace else None
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

    def abandon_step(self, failure: BaseException | None) -> None:
        """End a step that gets no more output: record the usage of its call, or the end of its tools.

        Without a ``failure`` it was aborted. Calling it twice is fine.
        """
        if self.asked is not None:
            call, self.asked = self.asked.abandon_step(failure, newest_step(self.recorder.fold.parts)), None
            self.recorder.add_to_next_unit(PutCall(call))
            if call.usage.total:
                at = call.ended_at or call.asked_at
                self.recorder.add_to_next_unit(RecordUsage(self.recorder.message.id, call.usage, call.cost_usd, at))
        self._finish()

    def _finish(self) -> None:
        """Record the end of the recorded step, with the duration of its tools."""
        if self.booked is None:
            return
        now = self.host.clock.now_ms()
        if self.tools_from is not None:
            self.recorder.add_to_next_sync(
                PutCall(msgspec.structs.replace(self.booked, tools_ms=now - self.tools_from))
            )
        self.recorder.add_to_next_sync(FinishStep(self.turn_id, self.step, now))
        self.booked = self.tools_from = None

    # The model call

    async def _call_model(self, request: ModelRequest) -> tuple[list[Call], bool, StepEnd]:
        """Call the model; retry only while nothing was recorded, as AI SDK v6 cannot take a chunk back."""
        attempt, overflowed = 1, False
        while True:
            before = self.recorder.fold.part_count
            try:
                result = await self._stream(request)
            except ProviderFailure as failure:
                self.abandon_step(failure)
                nothing_recorded = self.recorder.fold.part_count == before
                if nothing_recorded and failure.kind == "overflow":
                    less = await self.fitter.overflowed(
                        self._live(), inside=self.step > 0, flush=self.recorder.flush, again=overflowed
                    )
                    overflowed = True
                    request = await self._prepare_request(less)
                    continue
                if nothing_recorded and failure.kind == "invalid" and request.answer is not None:
                    # Only the provider knows which schemas it supports for structured output; tools may use any.
                    log.warning("%s refused a request for structured output: %s", request.model, failure)
                    self.form_by_tool, request = True, msgspec.structs.replace(request, answer=None)
                    continue
                # Only the provider knows which files it refuses. An old one must not make every later call fail.
                plain = (
                    without_older_files(request.messages) if nothing_recorded and failure.kind == "invalid" else None
                )
                if plain is not None:
                    log.warning("%s refused a request with files of earlier turns: %s", request.model, failure)
                    self.older_files, request = False, msgspec.structs.replace(request, messages=plain)
                    continue
                wait = delay_ms(failure, attempt, self.host.chance()) if nothing_recorded else None
                if wait is None:
                    raise
                attempt += 1
                await self.progress.retrying(attempt, failure, "trying again", wait)
            else:
                used = result[2].usage if result[2].is_counted else Usage()
                self.fitter.record_usage(used, self.recorder.message.id, self.recorder.fold.part_count)
                self.host.hooks.observe("after_model_call", (request, result[2]), self.config.session, self.turn_id)
                return result

    def _live(self) -> Message:
        """Return the message so far, with the start of the step that begins now."""
        return Message(self.recorder.message.id, "assistant", self.recorder.fold.parts, {"turn_id": self.turn_id})

    async def _prepare_request(self, context: Context) -> ModelRequest:
        """Return the request after hooks, with files included; a digest of it is stored with the step."""
        if self.fitter.config is not self.config:
            # A compaction refreshed the environment, or a server changed its tools: the new prompt is stored with
            # the next step.
            self.config, self.prompt_stored = self.fitter.config, False
        config = self.config
        by_tool = config.form is None or self.form_by_tool or refused_answers(self.recorder.fold.parts) > 0
        asked = ModelRequest(
            model=config.model,
            system=config.system_prompt.text,
            # Hooks may change the messages in place, and these are cached.
            messages=[*map(copied, context.messages)] if self.host.hooks.see_requests else list(context.messages),
            tools=config.schemas,
            # An assumed limit of an unknown model must not truncate its answers.
            max_output_tokens=config.info.max_output if config.info.output_known else None,
            temperature=config.agent.temperature,
            settled_call=context.settled_call,
            answer=None if by_tool else StructuredOutput.name,
            purpose="subagent" if config.session.kind == "subagent" else "answer",
        )
        request = await self.host.hooks.change("before_model_call", asked, config.session, self.turn_id)
        self.size = context.size.used
        tools = encode_tools(request.tools) if self.host.hooks.see_requests else config.encoded_tools
        self.sent = {
            "request": request_digest(request, tools),
            "tools": tools_digest(tools),
            "view": [context.compaction_depth, context.prune_seq, len(context.messages)],
            "sized": [context.size.chars, context.size.others],
            "limits": [request.max_output_tokens, request.temperature],
        }
        info = config.info if request.model == config.model else self.host.providers.info(request.model)
        output = await with_files(self.host.store, request.messages, info, config.session.owner)
        output = output if self.older_files else without_older_files(output) or output
        return msgspec.structs.replace(request, messages=output)

    async def _stream(self, request: ModelRequest) -> tuple[list[Call], bool, StepEnd]:
        calls: list[Call] = []
        asked = False
        asked_call = self.asked or self._create_call(request)
        # Written before the request is sent: from here on it may cost something, even if this process dies.
        await self.recorder.flush_synced(sync="process")
        failpoint("run.model_asked")
        recorder = self.recorder
        async with contextlib.aclosing(asked_call.stream(request)) as stream:
            async for item in stream:
                if isinstance(item, c.DELTAS):
                    pass  # the common case
                elif isinstance(item, StepEnd):
                    self._record_step(item)
                    # Calls of a truncated reply are not run: they were closed as failed.
                    return ([], False, item) if CUT in item.data else (calls, asked, item)
                elif isinstance(item, c.ToolInputAvailable) and item.provider_executed is not True:
                    asked = True
                    item, call = await self.caller.admit(item)
                    if call is not None:
                        calls.append(call)
                elif isinstance(item, c.ToolInputError):
                    asked = True
                recorder.write(item)
                if recorder.is_full:
                    await recorder.drain()
        # A truncated stream: retried if it produced nothing, otherwise resumed by the run.
        raise ProviderFailure(NO_END, kind="transient", cause="broken_off", provider_id=request.model.provider_id)

    def _create_call(
        self, request: ModelRequest, store_first: Callable[[ModelCall], object] | None = None
    ) -> AskedCall:
        """Create the row of a model call; it is written with the next unit, or by ``store_first``."""
        self.host.providers.get(request.model.provider_id)  # raises for an unknown provider, before there is a row

        def store(call: ModelCall) -> None:
            nonlocal store_first
            first, store_first = store_first, None
            if first is not None:
                first(call)
            else:
                self.recorder.add_to_next_unit(PutCall(call))

        self.asked = AskedCall(self.host, self._call_row(request), store)
        return self.asked

    def _call_row(self, request: ModelRequest) -> ModelCall:
        """Return the row of a call that starts now, with an estimate of its input; more may never be known."""
        session = self.config.session
        return ModelCall(
            id=self.host.mint.call(),
            purpose="answer",
            model=request.model,
            # A step starts when its call does: a compaction made for it comes before it.
            asked_at=self.host.clock.now_ms(),
            session_id=session.id,
            turn_id=self.turn_id,
            step=self.step,
            message_id=self.recorder.message.id,
            usage=Usage(input=self.size),
            workspace=session.workspace_root,
            owner=session.owner,
        )

    def _record_step(self, end: StepEnd) -> None:
        """Record the step of a finished model call and its usage with the next unit, whatever follows."""
        if self.asked is None:
            return
        call, self.asked = self.asked.complete(end, newest_step(self.recorder.fold.parts)), None
        step = Step(
            turn_id=self.turn_id,
            index=self.step,
            message_id=self.recorder.message.id,
            usage=call.usage,
            model=call.model,
            started_at=call.asked_at,
            finished_at=call.ended_at or call.asked_at,
            finish_reason=end.finish_reason,
            prompt_digest=self.config.system_prompt.digest,
            cost_usd=call.cost_usd,
            data={**end.data, "prompt": self.config.system_prompt.outline, **self.sent},
        )
        prompt = () if self.prompt_stored else prompt_writes(self.config, step.finished_at)
        self.recorder.add_to_next_sync(RecordStep(step), PutCall(call), *prompt)
        self.booked, self.prompt_stored = call, True
        # Written before its tools run or with the turn's end, whichever comes next.
        self.recorder.defer_flush()
