"""Kills a library in every scenario and finds out what is left: from its files and from the recorded requests."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import queue
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, Final, Protocol

from bench.kill_matrix.script import NEXT, PAST, PROMPTS, RELEASED, SUMMARY, TARGET, TOOL, WORDS
from bench.kill_matrix.wire import SHOWN, Wire, text_of

__all__ = ["SCENARIOS", "Facts", "Kills", "Process", "Start"]

Facts = dict[str, Any]


class Process(Protocol):
    """The part of :class:`subprocess.Popen` that is used."""

    pid: int

    @property
    def stdout(self) -> IO[bytes] | None: ...
    def poll(self) -> int | None: ...
    def wait(self) -> int: ...


Start = Callable[[Sequence[str], dict[str, str], Path], Process]
"""Starts an adapter with these arguments (way, scenario, folder, address), environment and log of errors."""
SCENARIOS: Final = ("text", "tool", "approval", "compaction")
_ROOT: Final = Path(__file__).resolve().parents[2]
_QUIET: Final = {
    "OPENAI_API_KEY": "none",
    "AGNO_TELEMETRY": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LANGSMITH_TRACING": "false",
    "LANGCHAIN_TRACING_V2": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
    "DBOS__APPVERSION": "matrix",
    "OTEL_SDK_DISABLED": "true",
    "ANONYMIZED_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "NO_PROXY": "127.0.0.1",
}


class _Child:
    """A process of an adapter. What it reports is read in a thread; it is killed by its own pid, with SIGKILL."""

    def __init__(self, start: Start, arguments: Sequence[str], log: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self._log, self._ended = log, False
        self._news: queue.Queue[dict[str, Any] | None] = queue.Queue()
        environ = {**os.environ, **_QUIET, "PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"}
        self._process = start(arguments, environ, log)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                try:
                    event = json.loads(line)
                except ValueError:
                    continue  # a library's own words
                if isinstance(event, dict):
                    self._news.put(event)
        self._news.put(None)

    def wait_for(self, reached: Callable[[], object], timeout: float) -> bool:
        """Wait until it is so, the child has ended or the time is over; return whether it is so."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            if reached():
                return True
            if self._ended:
                return bool(reached())
            self._take(0.02)
        return False

    def _take(self, timeout: float) -> None:
        """Take the next report, if one arrives in time."""
        with contextlib.suppress(queue.Empty):
            event = self._news.get(timeout=timeout)
            self._ended = event is None
            self.events += [event] if event else []

    def has(self, key: str) -> list[Any]:
        return [event[key] for event in self.events if key in event]

    def kill(self) -> None:
        self.close()
        self.wait_for(lambda: False, 5)  # reads to the end

    def close(self) -> None:
        """Kill the process unless it has ended."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # it ends just now
                os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def problem(self) -> str:
        """Return the last line of what it wrote to stderr."""
        lines = [line for line in self._log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1].strip()[:300] if lines else f"ended with {self._process.poll()}"


class Kills:
    """One library. Each scenario gets a folder and a wire of its own."""

    def __init__(self, start: Start, folder: Path, timeout: float = 60) -> None:
        self._start, self._folder, self._timeout = start, folder, timeout
        self._stored = ""

    def run(self, scenario: str) -> Facts:
        """Start, kill and resume; return what was found. ``broken`` says why the scenario did not get so far."""
        home = self._folder / scenario
        data = home / "data"
        data.mkdir(parents=True)
        wire = Wire()
        facts: Facts = {}
        try:
            wire.enter(scenario, "start")
            killed = self._killed(scenario, data, wire, facts)
            if killed is not None and not facts.get("broken"):
                facts |= {"left": _texts(data), "submitted": bool(killed.has("submitted"))}
                self._resumed(scenario, data, wire, facts, killed)
        finally:
            wire.close()
            (home / "requests.json").write_text(json.dumps(wire.requests, indent=1))
        facts.pop("left", None)
        return facts

    def _child(self, way: str, scenario: str, data: Path, wire: Wire) -> _Child:
        return _Child(self._start, (way, scenario, str(data), wire.url), data.parent / f"{way}.log")

    def _killed(self, scenario: str, data: Path, wire: Wire, facts: Facts) -> _Child | None:
        child = self._child("start", scenario, data, wire)
        reached: dict[str, Callable[[], object]] = {
            "text": lambda: wire.held.is_set() and _words("".join(child.has("shown"))) == SHOWN,
            "tool": lambda: _effects(data),
            "approval": lambda: child.has("pending"),
            "compaction": wire.held.is_set,
        }
        missing: list[Any] = []
        try:
            here = child.wait_for(lambda: reached[scenario]() or child.has("no_such_feature"), self._timeout)
            missing = child.has("no_such_feature")
            if here and not missing:
                child.kill()
        finally:
            child.close()
        if missing:
            facts["no_such_feature"] = missing[0]
            return None
        if not here:
            facts["broken"] = f"never reached the place: {child.problem()}"
            return None
        return child

    def _resumed(self, scenario: str, data: Path, wire: Wire, facts: Facts, killed: _Child) -> None:
        if scenario == "approval":
            self._answered(data, wire, facts)
        if scenario == "text":
            facts["shown"] = _words("".join(killed.has("shown")))
            copy = data.with_name("copy")
            shutil.copytree(data, copy)
            self._gone_on("next", scenario, copy, wire, facts)
            facts["prompted"] = self._found(scenario, copy, wire, facts["left"], "next")
        self._gone_on("resume", scenario, data, wire, facts)
        facts |= self._found(scenario, data, wire, facts["left"], "resume")

    def _gone_on(self, way: str, scenario: str, data: Path, wire: Wire, facts: Facts) -> None:
        wire.enter(scenario, way)
        child = self._child(way, scenario, data, wire)
        try:
            done = child.wait_for(lambda: child.has("done"), self._timeout)
        finally:
            child.close()
        if not done:
            facts["problem"] = f"resuming failed: {child.problem()}"
        self._stored = json.dumps(child.has("stored"), ensure_ascii=False)

    def _answered(self, data: Path, wire: Wire, facts: Facts) -> None:
        """Answer the approval in a second process, and kill it once the tool has run and the model is asked again."""
        facts["ran_before_answer"] = len(_effects(data))
        wire.enter("approval", "answer")
        child = self._child("resume", "approval", data, wire)
        try:
            asked = child.wait_for(lambda: wire.held.is_set() or child.has("done"), self._timeout)
            facts["answered"] = bool(asked and wire.held.is_set())
            facts["ran_after_answer"] = len(_effects(data))
            if facts["answered"]:
                child.kill()
            else:
                facts["problem"] = f"the answer failed: {child.problem()}"
        finally:
            child.close()

    def _found(self, scenario: str, data: Path, wire: Wire, left: str, phase: str) -> Facts:
        """Return what the files held at the kill, what the library reads of it, and what the next request holds."""
        asked = wire.in_phase(phase)
        following = [body for body in asked if NEXT in json.dumps(body.get("messages", []))]
        sent = following[-1]["messages"] if following else []
        text = " ".join(text_of(one) for one in sent)
        facts: Facts = {
            "asked_by_itself": len(asked) - len(following),
            "next_request": bool(sent),
            "next_prompt": PROMPTS[scenario] in text,
            "refused": sum(one["refused"] for one in wire.requests if one["phase"] == phase),
        }
        if scenario == "text":
            facts |= {"stored": _words(left), "read": _words(self._stored), "next_words": _words(text)}
        elif scenario == "compaction":
            questions = [question for question, _ in PAST]
            facts["stored"] = sum(one in left for one in questions)
            facts["read"] = sum(one in self._stored for one in questions)
            facts["next_questions"] = sum(one in text for one in questions)
            facts["next_summary"] = SUMMARY.split(":")[0] in text
        else:
            calls = [call for one in sent for call in one.get("tool_calls") or () if call["function"]["name"] == TOOL]
            results = {one.get("tool_call_id"): text_of(one) for one in sent if one.get("role") == "tool"}
            facts |= {"ran": len(_effects(data)), "as_shown": set(_effects(data)) == {TARGET}}
            facts["next_call"] = bool(calls)
            facts["next_result"] = next((results.get(call["id"], "")[:200] for call in calls), "")
            facts["next_released"] = RELEASED in facts["next_result"]
        return facts


def _effects(data: Path) -> list[str]:
    path = data / "effects.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def _words(text: str) -> int:
    return sum(word in text for word in WORDS)


def _texts(data: Path) -> str:
    """Return everything that is in the files, with what is in base64 also decoded."""
    whole = b"\n".join(
        path.read_bytes() for path in sorted(data.rglob("*")) if path.is_file() and path.name != "effects.txt"
    )
    decoded = []
    for run in re.findall(rb"[A-Za-z0-9+/]{40,}={0,2}", whole):
        try:
            decoded.append(base64.b64decode(run + b"=" * (-len(run) % 4)))
        except binascii.Error:
            continue
    return b"\n".join([whole, *decoded]).decode("utf-8", "replace")
