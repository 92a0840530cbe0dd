"""The loop: assemble, call, record, run what was asked for, and again, until nothing is asked for.

It goes by the presence of calls, not by what the provider says the reason for stopping was. Providers, tools, agents
and rules are values to it; it has no branch for any one of them. It does not settle the turn and does not know who
watches: it tells its run how it ended, or raises.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec

from clew.compaction.context import Context
from clew.errors import ModelFailed
from clew.failpoints import failpoint
from clew.providers.base import ModelRequest, ProviderFailure, StepEnd
from clew.providers.evidence import encode_tools, request_digest, tools_digest
from clew.providers.reply import CUT
from clew.providers.retry import delay_ms
from clew.runtime.answer_form import MAX_REFUSED, NO_ANSWER, OUTPUT_DATA, AnswerForm, refused_answers
from clew.runtime.calls import MAX_CALLS, TOO_MANY, Call, Caller, Verdict
from clew.runtime.files import with_files, without_older_files
from clew.runtime.host import Host
from clew.runtime.model_calls import NO_END, AskedCall, newest_step
from clew.runtime.progress import Progress
from clew.runtime.recorder import Recorder
from clew.runtime.room import Room
from clew.runtime.served_tools import serve_tools
from clew.runtime.setting import Setting, prompt_writes
from clew.store.unit import BookStep, BookUsage, FinishStep, PutBlob, PutCall
from clew.transcript import chunk as c
from clew.transcript.doom import Pattern, made_calls, repetition_of
from clew.transcript.message import Message, copied
from clew.transcript.model_call import ModelCall
from clew.transcript.turn import Step
from clew.transcript.usage import Usage
from clew.transcript.wait import Wait, digest_call

__all__ = ["End", "Loop"]

log = logging.getLogger("clew.files")

_SAID: Final[dict[str, Literal["length", "content_filter", "error", "other"]]] = {
    "length": "length",
    "content-filter": "content_filter",
    "error": "error",
    "other": "other",
}
"""Reasons of the model's own that leave an answer short of its end; one that nobody knows is not called an end."""


class End(msgspec.Struct, frozen=True):
    """How the loop ended. ``waiting`` names what a human is asked; ``stopped`` why it ended before it was done."""

    reason: Literal[
        "done", "length", "content_filter", "error", "other", "waiting", "step_limit", "warned", "doom", "no_form"
    ]
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
    size: int = 0
    kept_prompt: bool = False
    older_files: bool = True
    form_by_tool: bool = False
    request: ModelRequest | None = None
    asked: AskedCall | None = None
    booked: ModelCall | None = None
    tools_from: int | None = None

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
        began = self.host.clock.now_ms()
        async for given in self.caller.run(calls):
            await self._take(given)
        for call in await self.host.store.load_calls(self.setting.session.id) if calls else ():
            if (call.turn_id, call.step, call.ended) == (self.turn_id, self.step - 1, "completed"):
                spent = call.tools_ms + self.host.clock.now_ms() - began
                self.recorder.hold(PutCall(msgspec.structs.replace(call, tools_ms=spent)))

    async def _take(self, given: c.Chunk | PutBlob) -> None:
        if isinstance(given, PutBlob):
            # There before the chunk that names it, and before the request that sends it.
            self.recorder.join(given)
            await self.recorder.book(sync="process")
        else:
            await self.recorder.send(given)

    async def ask_ahead(self) -> None:
        """Begin the first step up to the row of its model call: only the model itself is not asked yet."""
        self.request = await self._begin_step()
        self._note_asked(self.request)

    async def _begin_step(self) -> ModelRequest:
        """What the step asks the model for."""
        served = await serve_tools(self.host, self.setting, self.caller.state)
        if served is not self.setting:
            self.caller.setting = served
            self.room.give(served)
        self.recorder.write(c.StartStep())
        return await self._prepared(await self.room.fit(self._live(), inside=self.step > 0, flush=self.recorder.flush))

    async def _one_step(self) -> End | None:
        request, self.request = self.request or await self._begin_step(), None
        failpoint("run.before_model_call")
        calls, asked, end = await self._call_model(request)
        if asked:
            # What was spent is durable before a tool runs, or another call is made: there a run may be aborted, or die.
            await self.recorder.book()
        verdicts = [await self.caller.judge(call) for call in calls[:MAX_CALLS]]
        for verdict in verdicts:
            if verdict.action == "deny":
                await self.recorder.send(c.ToolOutputError(tool_call_id=verdict.call.id, error_text=verdict.why))
        for call in calls[MAX_CALLS:]:
            await self.recorder.send(c.ToolOutputError(tool_call_id=call.id, error_text=TOO_MANY))
        failpoint("run.before_tools")
        self.tools_from = self.host.clock.now_ms() if calls else None
        async for item in self.caller.run([v.call for v in verdicts if v.action == "run"]):
            failpoint("run.tool_done")
            await self._take(item)
        waits = await self._ask(verdicts)
        form = self.setting.form
        given = next((call for call in calls if call.tool is form), None)
        if form is not None and given is not None:
            await self.recorder.send(c.Data(name=OUTPUT_DATA, data=form.value_of(given.args)))
        self.recorder.rest()
        await self.recorder.send(c.FinishStep())
        failpoint("run.before_step_end")
        self._finish()
        self.step += 1
        self.budget -= 1
        # The end of the last step goes with the unit that settles the turn, or lets it wait: one sync for both.
        if waits:
            return End("waiting", waits)
        if given is not None:
            return End("done")
        if form is not None and refused_answers(self.recorder.fold.parts) >= MAX_REFUSED:
            raise ModelFailed(NO_ANSWER)
        if not asked:
            return End(_SAID.get(end.finish_reason, "done" if form is None else "no_form"))
        # That of any other with the call that comes next, before which all of it is committed.
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

    def break_off(self, failure: BaseException | None) -> None:
        """Nothing more comes of this step: book what its call used so far, or end it where its tools were.

        Without a ``failure`` it was aborted. Saying it twice is fine.
        """
        if self.asked is not None:
            call, self.asked = self.asked.break_off(failure, newest_step(self.recorder.fold.parts)), None
            self.recorder.join(PutCall(call))
            if call.usage.total:
                at = call.ended_at or call.asked_at
                self.recorder.join(BookUsage(self.recorder.message.id, call.usage, call.cost_usd, at))
        self._finish()

    def _finish(self) -> None:
        """The step that was booked is over; how long its tools took is known now."""
        if self.booked is None:
            return
        now = self.host.clock.now_ms()
        if self.tools_from is not None:
            self.recorder.hold(PutCall(msgspec.structs.replace(self.booked, tools_ms=now - self.tools_from)))
        self.recorder.hold(FinishStep(self.turn_id, self.step, now))
        self.booked = self.tools_from = None

    # The model call

    async def _call_model(self, request: ModelRequest) -> tuple[list[Call], bool, StepEnd]:
        """One call, tried again only while nothing of it was recorded: v6 cannot take a chunk back."""
        attempt, overflowed = 1, False
        while True:
            before = self.recorder.fold.part_count
            try:
                result = await self._stream(request)
            except ProviderFailure as failure:
                self.break_off(failure)
                untouched = self.recorder.fold.part_count == before
                if untouched and failure.kind == "overflow":
                    less = await self.room.overflowed(
                        self._live(), inside=self.step > 0, flush=self.recorder.flush, again=overflowed
                    )
                    overflowed = True
                    request = await self._prepared(less)
                    continue
                if untouched and failure.kind == "invalid" and request.answer is not None:
                    # Which schemas a provider takes for a form, only it knows; as a tool's every one is taken.
                    log.warning("%s refused a request for an answer in a form: %s", request.model, failure)
                    self.form_by_tool, request = True, msgspec.structs.replace(request, answer=None)
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
                await self.progress.retrying(attempt, failure, "trying again", wait)
            else:
                used = result[2].usage if result[2].is_counted else Usage()
                self.room.note(used, self.recorder.message.id, self.recorder.fold.part_count)
                self.host.hooks.observe("after_model_call", (request, result[2]), self.setting.session, self.turn_id)
                return result

    def _live(self) -> Message:
        """The message so far, with the start of the step that begins now."""
        return Message(self.recorder.message.id, "assistant", self.recorder.fold.parts, {"turn_id": self.turn_id})

    async def _prepared(self, context: Context) -> ModelRequest:
        """The request as hooks leave it, files put in; what it was is kept with the step as a digest."""
        if self.room.setting is not self.setting:
            # A compaction has told the environment anew, or a server gives other tools: another prompt, to be kept with
            # the next step.
            self.setting, self.kept_prompt = self.room.setting, False
        setting = self.setting
        by_tool = setting.form is None or self.form_by_tool or refused_answers(self.recorder.fold.parts) > 0
        asked = ModelRequest(
            model=setting.model,
            system=setting.system_prompt.text,
            # Whose code sees them may change them in place, and these are kept.
            messages=[*map(copied, context.messages)] if self.host.hooks.see_requests else list(context.messages),
            tools=setting.schemas,
            # A guess about an unknown model must not cut its answers short.
            max_output_tokens=setting.info.max_output if setting.info.output_known else None,
            temperature=setting.agent.temperature,
            settled_call=context.settled_call,
            answer=None if by_tool else AnswerForm.name,
            purpose="subagent" if setting.session.kind == "subagent" else "answer",
        )
        request = await self.host.hooks.change("before_model_call", asked, setting.session, self.turn_id)
        self.size = context.size.used
        tools = encode_tools(request.tools) if self.host.hooks.see_requests else setting.encoded_tools
        self.sent = {
            "request": request_digest(request, tools),
            "tools": tools_digest(tools),
            "view": [context.compaction_depth, context.prune_seq, len(context.messages)],
            "sized": [context.size.chars, context.size.others],
            "limits": [request.max_output_tokens, request.temperature],
        }
        info = setting.info if request.model == setting.model else self.host.providers.info(request.model)
        given = await with_files(self.host.store, request.messages, info, setting.session.owner)
        given = given if self.older_files else without_older_files(given) or given
        return msgspec.structs.replace(request, messages=given)

    async def _stream(self, request: ModelRequest) -> tuple[list[Call], bool, StepEnd]:
        calls: list[Call] = []
        asked = False
        asked_call = self.asked or self._note_asked(request)
        # Written before it is asked: from here on it may cost something, whatever happens to this process.
        await self.recorder.book(sync="process")
        failpoint("run.model_asked")
        recorder = self.recorder
        async with contextlib.aclosing(asked_call.stream(request)) as stream:
            async for item in stream:
                if isinstance(item, c.DELTAS):
                    pass  # nearly all there is
                elif isinstance(item, StepEnd):
                    self._book(item)
                    # Of a reply that was cut off nothing is run: its calls have ended already.
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
        # A cut like any other: tried again while nothing came, and gone on from where nobody is there to say so.
        raise ProviderFailure(NO_END, kind="transient", cause="broken_off", provider_id=request.model.provider_id)

    def _note_asked(self, request: ModelRequest) -> AskedCall:
        """The row of a call goes with the next unit."""
        self.host.providers.get(request.model.provider_id)  # one that cannot be asked was not asked
        self.asked = AskedCall(self.host, self._row(request), lambda call: self.recorder.join(PutCall(call)))
        return self.asked

    def _row(self, request: ModelRequest) -> ModelCall:
        """The call as it is asked, with a guess of what it is sent: no more may ever be known of it."""
        session = self.setting.session
        return ModelCall(
            id=self.host.mint.call(),
            purpose="answer",
            model=request.model,
            # A step begins when it is asked for: a compaction made for it comes before it.
            asked_at=self.host.clock.now_ms(),
            session_id=session.id,
            turn_id=self.turn_id,
            step=self.step,
            message_id=self.recorder.message.id,
            usage=Usage(input=self.size),
            workspace=session.workspace_root,
            owner=session.owner,
        )

    def _book(self, end: StepEnd) -> None:
        """The model call has ended: its step, and what it used, go with the next unit, whatever comes."""
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
            prompt_digest=self.setting.system_prompt.digest,
            cost_usd=call.cost_usd,
            data={**end.data, "prompt": self.setting.system_prompt.outline, **self.sent},
        )
        kept = () if self.kept_prompt else prompt_writes(self.setting, step.finished_at)
        self.recorder.hold(BookStep(step), PutCall(call), *kept)
        self.booked, self.kept_prompt = call, True
        # Booked before its tools run, or with the turn's end: either comes next.
        self.recorder.rest()
