"""Tool calls of a step: checked, decided, run side by side, and landed as they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from clew.errors import ClewError, InvalidInput, PermissionDenied, ToolFailed
from clew.live.base import RunningCall
from clew.permissions.approval_rules import offers_for
from clew.runtime.context import session_policy
from clew.runtime.given_files import take_files
from clew.runtime.hooks import HookRefused
from clew.runtime.host import Host
from clew.runtime.live_output import LiveOutput
from clew.runtime.permit import RulesInForce
from clew.runtime.race import after, race
from clew.runtime.recall import recall
from clew.runtime.setting import Setting
from clew.store.unit import PutBlob
from clew.tools.arguments import check_arguments
from clew.tools.base import (
    MAX_OUTPUT_CHARS,
    Change,
    ChildOutcome,
    NextTurn,
    PreviewOf,
    Signal,
    Tool,
    ToolContext,
    ToolOutput,
)
from clew.tools.output import to_output
from clew.transcript import chunk as c
from clew.transcript.gate import clean_value
from clew.transcript.part import OWN, child_data
from clew.transcript.rule import Target

__all__ = [
    "MAX_CALLS",
    "MAX_CALLS_AT_ONCE",
    "TOO_MANY",
    "Call",
    "Caller",
    "ScheduleTurn",
    "SpawnChild",
    "ToolCallValue",
    "Verdict",
]

MAX_CALLS: Final = 128
MAX_CALLS_AT_ONCE: Final = 16
TOO_MANY: Final = (
    f"a step runs at most {MAX_CALLS} tool calls and this one came after them, so it did not run; "
    "make it again in the next step if it is still needed"
)

MAX_ABOUT_BYTES: Final = 64 * 1024
_LONG_MS: Final = 1_000
"""From here on people are told that a call runs, and how long it took: what is quicker needs no figure."""

log = logging.getLogger("clew.tools")


SpawnChild = Callable[[str, str | None, Setting, Signal, Callable[[Any], None]], Awaitable[ChildOutcome]]
"""Runs a prompt as a child of the session of this setting until that ends or the signal says so; reports how
far it is, its id first."""


ScheduleTurn = Callable[[Setting, NextTurn], Awaitable[dict[str, Any]]]
"""Keeps what the agent of this setting wants to be told later; what it is told of that."""


class Call(msgspec.Struct, frozen=True):
    """A call with arguments that fit its tool. ``granted`` is what it was judged on and may touch."""

    id: str
    tool: Tool
    args: dict[str, Any]
    granted: tuple[Target, ...] = ()


class ToolCallValue(msgspec.Struct, frozen=True):
    """A call as hooks see it; ``before_tool_call`` may give back one with other arguments."""

    session_id: str
    tool_call_id: str
    tool: str
    args: dict[str, Any]


class Verdict(msgspec.Struct, frozen=True):
    """What becomes of a call: run, ask a human, or not at all, and why."""

    call: Call
    action: Literal["run", "ask", "question", "deny"]
    why: str
    descriptor: dict[str, Any]


class Caller:
    """Handles the calls of one run."""

    def __init__(
        self,
        host: Host,
        setting: Setting,
        signal: Signal,
        spawn_child: SpawnChild,
        schedule_turn: ScheduleTurn,
        turn_id: str,
        running: Callable[[tuple[RunningCall, ...]], None],
    ) -> None:
        self._running = running
        self._long: dict[str, RunningCall] = {}
        self._host = host
        self.setting = setting
        self._signal = signal
        self._spawn_child = spawn_child
        self._schedule_turn = schedule_turn
        self.state: dict[str, Any] = {}
        self._turn_id = turn_id
        # More than the usual only where an output leaves half of the window to all else, at four characters a token.
        preset = session_policy(host.config, setting.session).output_chars
        self._output_chars = max(min(preset, 2 * setting.info.window), MAX_OUTPUT_CHARS)

    async def admit(self, chunk: c.ToolInputAvailable) -> tuple[c.Chunk, Call | None]:
        """What is recorded for a call the model made, and the call itself when it can be carried out."""
        # What is judged, asked about and run is what is recorded, not what the recorder's gate would make of it.
        cleaned, replaced = clean_value(chunk.input)
        if replaced:
            chunk = msgspec.structs.replace(chunk, input=cleaned)
        tool = self.setting.tools.get(chunk.tool_name)
        if tool is None:
            known = ", ".join(sorted(self.setting.tools)) or "none"
            return _unfit(chunk, f"there is no tool {chunk.tool_name!r} here; there are: {known}"), None
        problem = check_arguments(tool.input_schema, chunk.input)
        if problem is not None:
            return _unfit(chunk, problem), None
        value = ToolCallValue(self.setting.session.id, chunk.tool_call_id, tool.name, chunk.input)
        try:
            changed = await self._host.hooks.change("before_tool_call", value, self.setting.session, self._turn_id)
        except HookRefused as error:
            return _unfit(chunk, str(error)), None
        if changed is not value:
            problem = check_arguments(tool.input_schema, changed.args)
            if problem is not None:
                return _unfit(chunk, f"a hook changed the arguments: {problem}"), None
            chunk = msgspec.structs.replace(chunk, input=changed.args)
        return chunk, Call(chunk.tool_call_id, tool, changed.args)

    async def judge(self, call: Call) -> Verdict:
        """Whether the call may run, decided on what it would really touch."""
        if call.tool is self.setting.form:
            return Verdict(call, "run", "it touches nothing", {})
        if call.tool.asks_human:
            if self.setting.attended:
                return Verdict(call, "question", "the tool asks a human", {})
            return Verdict(call, "deny", "nobody is there to answer", {})
        try:
            targets = tuple(call.tool.targets(call.args, self.setting.workspace))
        except ClewError as error:
            return Verdict(call, "deny", str(error), {})
        except Exception as error:  # a host's own code; what it touches nobody knows
            log.exception("tool %s could not say what it would touch", call.tool.name)
            return Verdict(call, "deny", f"{call.tool.name} could not say what it would touch: {error}", {})
        decision = await self.setting.permit.decide(targets, call.tool.name)
        descriptor = {
            "targets": [msgspec.to_builtins(target) for target in targets],
            "rule": msgspec.to_builtins(decision.rule) if decision.rule else None,
            "scope": decision.scope,
            "target": msgspec.to_builtins(decision.target) if decision.target else None,
            "reason": decision.reason,
        }
        if decision.action == "allow":
            granted = msgspec.structs.replace(call, granted=tuple(targets))
            return Verdict(granted, "run", "allowed", descriptor)
        if decision.action == "ask":
            # Off the loop: a shell line is read for it.
            root = str(self.setting.workspace) if self.setting.workspace else None
            offers = await asyncio.to_thread(offers_for, targets, root, "session")
            told = [{"pattern": offer.pattern, "words": offer.words} for offer in offers]
            shown = {**descriptor, "offers": told}
            change = await self._preview(call, targets)
            if change is not None:
                shown["change"] = msgspec.to_builtins(change)
            return Verdict(call, "ask", "needs a human's word", shown)
        return Verdict(call, "deny", f"denied: {decision.reason}", descriptor)

    async def _preview(self, call: Call, targets: Sequence[Target]) -> Change | None:
        """What the call would change, of files that may be read here: it is kept with the request."""
        preview: PreviewOf | None = getattr(call.tool, "preview", None)
        if preview is None:
            return None
        read = [Target("read", "path", one.value, one.inside) for one in targets if one.kind == "path"]
        if read and (await self.setting.permit.decide(read, "read")).action == "deny":
            return None
        try:
            return await asyncio.to_thread(preview, call.args, self.setting.workspace)
        except Exception as error:  # a host's own code; the request is put without it
            log.warning("what %s would change is not shown: %s", call.tool.name, error)
            return None

    async def run(self, calls: Sequence[Call]) -> AsyncIterator[c.Chunk | PutBlob]:
        """Run the calls side by side, a limited number at once; what each gives so far, and its result as soon as it is
        there, after the files that belong to it.

        One that waited for a slower call before it would be lost with that, and be done again.
        """
        room = asyncio.Semaphore(MAX_CALLS_AT_ONCE)
        told: asyncio.Queue[c.Chunk | PutBlob | None] = asyncio.Queue()

        async def in_turn(call: Call) -> None:
            try:
                async with room:
                    told.put_nowait(await self._execute(call, told.put_nowait))
            finally:
                told.put_nowait(None)

        tasks = [asyncio.get_running_loop().create_task(in_turn(call)) for call in calls]
        try:
            running = len(tasks)
            while running:
                chunk = await told.get()
                if chunk is None:
                    running -= 1
                else:
                    yield chunk
            for task in tasks:
                task.result()
        finally:
            for task in tasks:
                # A tool that does not heed this ends by itself; nobody waits for it and its output is dropped.
                task.cancel()

    async def _execute(self, call: Call, show: Callable[[c.Chunk | PutBlob], None]) -> c.Chunk:
        name = call.tool.name
        clock = self._host.clock
        live = LiveOutput(clock, call.id, show)
        began, since = clock.monotonic_ms(), clock.now_ms()
        timer = clock.call_later(_LONG_MS, lambda: self._tell(call, RunningCall(call.id, name, since)))
        about: dict[str, Any] = {}
        try:
            with self._host.telemetry.tool(name, call.id, call.args) as doing:
                output = await self._watched(call, live)
                self._host.telemetry.gave(doing, output.value)
            given = await asyncio.to_thread(take_files, output.files, call.id, since) if output.files else ()
        except (ToolFailed, PermissionDenied) as error:
            result: c.ToolOutputError | c.ToolOutputAvailable = c.ToolOutputError(
                tool_call_id=call.id, error_text=str(error)
            )
        except (Exception, GeneratorExit) as error:
            log.exception("tool %s failed in an unforeseen way", name)
            result = c.ToolOutputError(
                tool_call_id=call.id, error_text=f"{name} failed: {type(error).__name__}: {error}"
            )
        else:
            result = c.ToolOutputAvailable(tool_call_id=call.id, output=output.value)
            about = _plain(output.about)
            # Before the result: whoever finds that finds its files.
            for item in given:
                show(item)
        finally:
            live.end()
            timer.cancel()
        if isinstance(result, c.ToolOutputError):
            # However it failed, its subagent's session is there to be looked at.
            about = child_data(live.child)
        took = round(clock.monotonic_ms() - began)
        if call.id in self._long:
            self._tell(call, None)
        if took >= _LONG_MS:
            about["took_ms"] = took
        if about:
            result = msgspec.structs.replace(result, provider_metadata={OWN: about})
        value = ToolCallValue(self.setting.session.id, call.id, name, call.args)
        self._host.hooks.observe("after_tool_call", (value, c.chunk_dict(result)), self.setting.session, self._turn_id)
        return result

    def _tell(self, call: Call, running: RunningCall | None) -> None:
        """Let people see which calls take long, and since when. One that outlives its run is nobody's any more."""
        self._long.pop(call.id, None)
        if running is not None:
            self._long[call.id] = running
        if not self._signal.aborted:
            self._running(tuple(self._long.values()))

    async def _watched(self, call: Call, live: LiveOutput) -> ToolOutput:
        """Run the tool under its watchdog."""
        context = self._context(call, live)
        work = await race(call.tool.execute(call.args, context), after(self._host.clock, call.tool.timeout_ms))
        if not work.done():
            seconds = call.tool.timeout_ms / 1000
            raise ToolFailed(
                f"{call.tool.name} did not end within {seconds:g} s and was stopped; its effects are unknown"
            )
        if work.cancelled():
            raise ToolFailed(f"{call.tool.name} was cancelled from inside; its effects are unknown")
        # Whoever wrote the tool may have made its output by hand.
        return await to_output(work.result(), context, call.tool.name)

    def _context(self, call: Call, live: LiveOutput) -> ToolContext:
        loaded: list[RulesInForce] = []

        async def permit(target: Target) -> None:
            # A path that was granted is asked about again only where it may have become another file's name.
            if target in call.granted and target.kind != "path":
                return
            if not loaded:
                # Once per call: a search asks about every file it opens.
                loaded.append(await self.setting.permit.load())
            confined = loaded[0].confined
            if target.kind == "command" or (confined is not None and confined.must_look(target)):
                decision = await asyncio.to_thread(loaded[0].decide, [target])
            else:
                decision = loaded[0].decide([target])
            # A human's word on a folder covers what lies below it, but never what a rule denies.
            # Whatever the capability is called: a search that was granted a folder reads the files in it.
            folders = [above.value for above in call.granted if above.kind == "path" == target.kind]
            if decision.action == "ask" and any(Path(target.value).is_relative_to(folder) for folder in folders):
                return
            if decision.action != "allow":
                raise PermissionDenied(f"{target.value} is not allowed: {decision.reason}")

        async def load_skill(name: str) -> str:
            try:
                return await asyncio.to_thread(self.setting.skills.load_skill, name)
            except InvalidInput as error:
                raise ToolFailed(str(error)) from error

        set_up = self._host.config.tools
        return ToolContext(
            session_id=self.setting.session.id,
            turn_id=self._turn_id,
            metadata=self.setting.session.metadata,
            owner=self.setting.session.owner,
            deps=self._host.deps,
            call_id=call.id,
            signal=self._signal,
            workspace=self.setting.workspace,
            judged=call.granted,
            spill=self._host.spill / self.setting.session.id,
            permit=permit,
            spawn_child=lambda prompt, agent: self._spawn_child(
                prompt, agent, self.setting, self._signal, live.report_child
            ),
            report=live.report,
            load_skill=load_skill,
            schedule=lambda wanted: self._schedule_turn(self.setting, wanted),
            recall=lambda query: recall(self._host.store, self.setting.session.id, self.setting.session.owner, query),
            state=self.state,
            max_output_chars=set_up.output_chars_by_tool.get(call.tool.name, set_up.output_chars or self._output_chars),
        )


def _plain(about: Mapping[str, Any] | None) -> dict[str, Any]:
    """What a tool tells people beside its output, as JSON; what is none, or too long, is left out."""
    try:
        encoded = msgspec.json.encode(about or {})
        told: Any = msgspec.json.decode(encoded) if len(encoded) <= MAX_ABOUT_BYTES else {}
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        told = {}
    return told if isinstance(told, dict) else {}


def _unfit(chunk: c.ToolInputAvailable, problem: str) -> c.Chunk:
    """A call that cannot be carried out, with the reason for the model to read."""
    return c.ToolInputError(
        tool_call_id=chunk.tool_call_id,
        tool_name=chunk.tool_name,
        input=chunk.input,
        error_text=problem,
        dynamic=chunk.dynamic,
        provider_metadata=chunk.provider_metadata,
    )
