"""Tool calls of a step: validated, judged, run concurrently, and recorded as each one ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from clew.compaction.policy import session_policy
from clew.errors import ClewError, InvalidInput, PermissionDenied, ToolFailed
from clew.live.base import RunningCall
from clew.permissions.approval_rules import offers_for
from clew.safe_read import confined
from clew.session.cancellable import after, run_until
from clew.session.context.recall import recall
from clew.session.hooks import HookRefused
from clew.session.host import Host
from clew.session.prompt.turn_config import TurnConfig
from clew.session.turn.permission_check import RulesInForce
from clew.session.turn.tool_output import LiveOutput, take_files
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
from clew.tools.targets import call_targets
from clew.transcript import chunk as c
from clew.transcript.part import OWN, child_data
from clew.transcript.rule import Target
from clew.transcript.value_check import clean_value

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
_REPORT_AFTER_MS: Final = 1_000
"""Calls that run longer are shown with their start, and later with their duration."""

log = logging.getLogger("clew.tools")


SpawnChild = Callable[[str, str | None, TurnConfig, Signal, Callable[[Any], None]], Coroutine[Any, Any, ChildOutcome]]
"""Runs a prompt as a child of the session of this turn config until it ends or the signal is aborted; reports its
progress, its id first."""


ScheduleTurn = Callable[[TurnConfig, NextTurn], Awaitable[dict[str, Any]]]
"""Schedules the turn that the agent of this turn config asked for; returns the tool's answer about it."""


class Call(msgspec.Struct, frozen=True):
    """A call with valid arguments. ``granted`` are the targets it was judged on and may touch."""

    id: str
    tool: Tool
    args: dict[str, Any]
    granted: tuple[Target, ...] = ()


class ToolCallValue(msgspec.Struct, frozen=True):
    """A call as hooks see it; ``before_tool_call`` may return one with other arguments."""

    session_id: str
    tool_call_id: str
    tool: str
    args: dict[str, Any]


class Verdict(msgspec.Struct, frozen=True):
    """The decision about a call, with the reason: run it, ask a human, or deny it."""

    call: Call
    action: Literal["run", "ask", "question", "deny"]
    why: str
    descriptor: dict[str, Any]


class Caller:
    """The handler of one run's tool calls."""

    def __init__(
        self,
        host: Host,
        config: TurnConfig,
        signal: Signal,
        spawn_child: SpawnChild,
        schedule_turn: ScheduleTurn,
        turn_id: str,
        running: Callable[[tuple[RunningCall, ...]], None],
    ) -> None:
        self._running = running
        self._long_running: dict[str, RunningCall] = {}
        self._host = host
        self.config = config
        self._signal = signal
        self._spawn_child = spawn_child
        self._schedule_turn = schedule_turn
        self.state: dict[str, Any] = {}
        self._unfinished: dict[str, asyncio.Task[None]] = {}
        self.children: set[asyncio.Task[ChildOutcome]] = set()
        self._late: asyncio.Queue[c.Chunk | PutBlob | None] = asyncio.Queue()
        self._turn_id = turn_id
        # Above the default only where one output still leaves half of the window free, at four characters a token.
        preset = session_policy(host.config, config.session).output_chars
        self._output_chars = max(min(preset, 2 * config.info.window), MAX_OUTPUT_CHARS)

    async def admit(self, chunk: c.ToolInputAvailable) -> tuple[c.Chunk, Call | None]:
        """Return the chunk to record for a call of the model, and the call itself if it is valid."""
        # What is judged, approved and run must be what is recorded, not what the recorder would sanitize it to.
        cleaned, replaced = clean_value(chunk.input)
        if replaced:
            chunk = msgspec.structs.replace(chunk, input=cleaned)
        tool = self.config.tools.get(chunk.tool_name)
        if tool is None:
            known = ", ".join(sorted(self.config.tools)) or "none"
            return _rejected(chunk, f"there is no tool {chunk.tool_name!r} here; there are: {known}"), None
        problem = check_arguments(tool.input_schema, chunk.input)
        if problem is not None:
            return _rejected(chunk, problem), None
        value = ToolCallValue(self.config.session.id, chunk.tool_call_id, tool.name, chunk.input)
        try:
            changed = await self._host.hooks.change("before_tool_call", value, self.config.session, self._turn_id)
        except HookRefused as error:
            return _rejected(chunk, str(error)), None
        if changed is not value:
            problem = check_arguments(tool.input_schema, changed.args)
            if problem is not None:
                return _rejected(chunk, f"a hook changed the arguments: {problem}"), None
            chunk = msgspec.structs.replace(chunk, input=changed.args)
        return chunk, Call(chunk.tool_call_id, tool, changed.args)

    async def judge(self, call: Call) -> Verdict:
        """Decide whether the call may run, by what it would really touch."""
        if call.tool is self.config.form:
            return Verdict(call, "run", "it touches nothing", {})
        if call.tool.asks_human:
            if self.config.attended:
                return Verdict(call, "question", "the tool asks a human", {})
            return Verdict(call, "deny", "no user is available to answer", {})
        try:
            targets = tuple(call_targets(call.tool, call.args, self.config.workspace))
        except ClewError as error:
            return Verdict(call, "deny", str(error), {})
        except Exception as error:  # host code; the call's targets are unknown
            log.exception("tool %s could not say what it would touch", call.tool.name)
            return Verdict(call, "deny", f"{call.tool.name} could not say what it would touch: {error}", {})
        decision = await self.config.permit.decide(targets, call.tool.name)
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
            # In a thread: this parses shell commands.
            root = str(self.config.workspace) if self.config.workspace else None
            offers = await asyncio.to_thread(offers_for, targets, root, "session")
            offers_shown = [{"pattern": offer.pattern, "words": offer.words} for offer in offers]
            shown = {**descriptor, "offers": offers_shown}
            change = await self._preview(call, targets)
            if change is not None:
                shown["change"] = msgspec.to_builtins(change)
            return Verdict(call, "ask", "needs approval", shown)
        return Verdict(call, "deny", f"denied: {decision.reason}", descriptor)

    async def _preview(self, call: Call, targets: Sequence[Target]) -> Change | None:
        """Return what the call would change, if the files may be read; it is stored with the request."""
        preview: PreviewOf | None = getattr(call.tool, "preview", None)
        if preview is None:
            return None
        read = [Target("read", "path", one.value, one.inside) for one in targets if one.kind == "path"]
        if read and (await self.config.permit.decide(read, "read")).action == "deny":
            return None
        try:
            return await asyncio.to_thread(preview, call.args, self.config.workspace)
        except Exception as error:  # host code; the request is shown without a preview
            log.warning("no preview of the changes of %s: %s", call.tool.name, error)
            return None

    async def run(self, calls: Sequence[Call]) -> AsyncIterator[c.Chunk | PutBlob]:
        """Run the calls concurrently, up to a limit. Yield progress, then each result when it exists, after its files.

        A result that waited for a slower call would be lost if that one was lost, and its call repeated.
        """
        slots, begun = asyncio.Semaphore(MAX_CALLS_AT_ONCE), set[str]()
        results: asyncio.Queue[c.Chunk | PutBlob | None] = asyncio.Queue()

        async def run_one(call: Call) -> None:
            try:
                async with slots:
                    begun.add(call.id)
                    results.put_nowait(await self._execute(call, results.put_nowait))
            finally:
                results.put_nowait(None)

        tasks = [asyncio.get_running_loop().create_task(run_one(call)) for call in calls]
        try:
            running = len(tasks)
            while running:
                chunk = await results.get()
                if chunk is None:
                    running -= 1
                else:
                    yield chunk
            for task in tasks:
                task.result()
        finally:
            for call, task in zip(calls, tasks, strict=True):
                if call.id in begun and not task.done() and not getattr(call.tool, "cancel", True):
                    self._unfinished[call.id], self._late = task, results
                else:
                    # A tool that ignores cancellation is not awaited, and its output is dropped.
                    task.cancel()

    @property
    def unfinished(self) -> tuple[str, ...]:
        """The calls that an abort did not cancel, because their tools are declared so."""
        return tuple(self._unfinished)

    async def finish(self) -> list[c.Chunk | PutBlob]:
        """Wait for the calls that were not cancelled, each at most for its timeout, and return what they gave."""
        ids, _ = set(self._unfinished), await asyncio.wait(self._unfinished.values())
        self._unfinished = {}
        given = [self._late.get_nowait() for _ in range(self._late.qsize())]
        return [one for one in given if isinstance(one, PutBlob) or (one and getattr(one, "tool_call_id", None) in ids)]

    async def _run_child(self, prompt: str, agent: str | None, report: Callable[[Any], None]) -> ChildOutcome:
        """Run a subagent. The signal of an abort ends it; the run waits for that, since it may still have effects."""
        child = asyncio.get_running_loop().create_task(
            self._spawn_child(prompt, agent, self.config, self._signal, report)
        )
        self.children.add(child)
        child.add_done_callback(self._forget_child)
        try:
            return await asyncio.shield(child)
        except asyncio.CancelledError:
            if not self._signal.aborted:
                child.cancel()
            raise

    def _forget_child(self, child: asyncio.Task[ChildOutcome]) -> None:
        self.children.discard(child)
        if not child.cancelled():
            child.exception()  # The call that would raise it may have been cancelled.

    async def _execute(self, call: Call, show: Callable[[c.Chunk | PutBlob], None]) -> c.Chunk:
        name = call.tool.name
        clock = self._host.clock
        live = LiveOutput(clock, call.id, show)
        began, since = clock.monotonic_ms(), clock.now_ms()
        timer = clock.call_later(
            _REPORT_AFTER_MS, lambda: self._report_running(call, RunningCall(call.id, name, since))
        )
        about: dict[str, Any] = {}
        try:
            with self._host.telemetry.tool(name, call.id, call.args) as doing:
                output = await self._execute_with_timeout(call, live)
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
            about = _as_metadata(output.about)
            # Before the result, so that the files exist for every reader of it.
            for item in given:
                show(item)
        finally:
            live.end()
            timer.cancel()
        if isinstance(result, c.ToolOutputError):
            # The session of its subagent can be opened even if the call failed.
            about = child_data(live.child)
        took = round(clock.monotonic_ms() - began)
        if call.id in self._long_running:
            self._report_running(call, None)
        if took >= _REPORT_AFTER_MS:
            about["took_ms"] = took
        if self._signal.aborted:
            about["late"] = True
        if about:
            result = msgspec.structs.replace(result, provider_metadata={OWN: about})
        value = ToolCallValue(self.config.session.id, call.id, name, call.args)
        self._host.hooks.observe("after_tool_call", (value, c.chunk_dict(result)), self.config.session, self._turn_id)
        return result

    def _report_running(self, call: Call, running: RunningCall | None) -> None:
        """Publish which calls take long, and since when. A call that outlives its run is no longer published."""
        self._long_running.pop(call.id, None)
        if running is not None:
            self._long_running[call.id] = running
        if not self._signal.aborted:
            self._running(tuple(self._long_running.values()))

    async def _execute_with_timeout(self, call: Call, live: LiveOutput) -> ToolOutput:
        """Run the tool with its timeout."""
        context = self._context(call, live)
        work = await run_until(call.tool.execute(call.args, context), after(self._host.clock, call.tool.timeout_ms))
        if not work.done():
            seconds = call.tool.timeout_ms / 1000
            raise ToolFailed(
                f"{call.tool.name} did not end within {seconds:g} s and was stopped; its effects are unknown"
            )
        if work.cancelled():
            raise ToolFailed(f"{call.tool.name} was cancelled from inside; its effects are unknown")
        # A custom tool may return a hand-made output.
        return await to_output(work.result(), context, call.tool.name)

    def _context(self, call: Call, live: LiveOutput) -> ToolContext:
        loaded: list[RulesInForce] = []

        async def permit(target: Target) -> None:
            # Other granted targets need no check; a path may have become the name of another file since.
            if target.kind != "path" and any(_is_same(target, granted) for granted in call.granted):
                return
            if not loaded:
                # Once per call: a search checks every file it opens.
                loaded.append(await self.config.permit.load())
            confined = loaded[0].confined
            if target.kind == "command" or (confined is not None and confined.must_look(target)):
                decision = await asyncio.to_thread(loaded[0].decide, [target])
            else:
                decision = loaded[0].decide([target])
            # An approval of a folder covers what is below it, but never what a rule denies.
            # Independent of the permission's name: a search with an approved folder reads the files in it.
            folders = [above.value for above in call.granted if above.kind == "path" == target.kind]
            if decision.action == "ask" and any(Path(target.value).is_relative_to(folder) for folder in folders):
                return
            if decision.action != "allow":
                raise PermissionDenied(f"{target.value} is not allowed: {decision.reason}")

        async def load_skill(name: str) -> str:
            try:
                with confined(None if self.config.session.owner is None else self.config.workspace):
                    return await asyncio.to_thread(self.config.skills.load_skill, name)
            except InvalidInput as error:
                raise ToolFailed(str(error)) from error

        set_up = self._host.config.tools
        return ToolContext(
            session_id=self.config.session.id,
            turn_id=self._turn_id,
            metadata=self.config.session.metadata,
            owner=self.config.session.owner,
            deps=self._host.deps,
            call_id=call.id,
            signal=self._signal,
            workspace=self.config.workspace,
            judged=call.granted,
            spill=self._host.spill / self.config.session.id,
            permit=permit,
            spawn_child=lambda prompt, agent: self._run_child(prompt, agent, live.report_child),
            report=live.report,
            load_skill=load_skill,
            schedule=lambda wanted: self._schedule_turn(self.config, wanted),
            recall=lambda query: recall(self._host.store, self.config.session.id, self.config.session.owner, query),
            state=self.state,
            max_output_chars=set_up.output_chars_by_tool.get(call.tool.name, set_up.output_chars or self._output_chars),
        )


def _is_same(target: Target, granted: Target) -> bool:
    # A tool need not repeat its capabilities.
    return (target.permission, target.kind, target.value) == (granted.permission, granted.kind, granted.value)


def _as_metadata(about: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a tool's metadata as JSON, or nothing if it is no JSON object or too large."""
    try:
        encoded = msgspec.json.encode(about or {})
        value: Any = msgspec.json.decode(encoded) if len(encoded) <= MAX_ABOUT_BYTES else {}
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        value = {}
    return value if isinstance(value, dict) else {}


def _rejected(chunk: c.ToolInputAvailable, problem: str) -> c.Chunk:
    """Return the chunk of an invalid call, with the reason for the model."""
    return c.ToolInputError(
        tool_call_id=chunk.tool_call_id,
        tool_name=chunk.tool_name,
        input=chunk.input,
        error_text=problem,
        dynamic=chunk.dynamic,
        provider_metadata=chunk.provider_metadata,
    )
