"""The tool contract: what a model may call, and what a tool may access.

A tool is a name, a description, a JSON Schema for its arguments, and a coroutine. It names *what a call would touch*
(:meth:`Tool.targets`) beforehand, so that permissions are decided on resolved paths, the parsed shell command, or the
host. While it runs it accesses its session only through its :class:`ToolContext`. A tool that fails raises
``ToolFailed`` with a sentence for the model. Its output is JSON; output that is too large or not text is described and
stored in a file.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from clew.clock import Timer
from clew.errors import ToolFailed
from clew.transcript.rule import CAPABILITIES, Capability, Target

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "MAX_OUTPUT_CHARS",
    "Capabilities",
    "Change",
    "ChildOutcome",
    "File",
    "NextTurn",
    "PreviewOf",
    "Signal",
    "TargetsOf",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "declared_capabilities",
    "target_of_arguments",
]

log = logging.getLogger("clew.tools")

DEFAULT_TIMEOUT_MS: Final = 120_000
MAX_OUTPUT_CHARS: Final = 30_000


TargetsOf: TypeAlias = Callable[[Mapping[str, Any], Path | None], Sequence[Target]]
"""Returns what a call with these arguments would touch in this workspace; see :meth:`Tool.targets`."""

PreviewOf: TypeAlias = Callable[[Mapping[str, Any], Path | None], "Change | None"]
"""Returns what a call with these arguments would change, for its approval. Reads the disk; changes nothing."""


Capabilities: TypeAlias = Mapping[Capability, str] | Collection[Capability]
"""The capabilities that a tool uses, each with the argument that names what it is used on; without arguments its
targets say so. Empty: it uses none."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """The change a call makes to a text file: a unified diff with its line counts; ``note`` adds a remark."""

    diff: str
    added: int
    removed: int
    note: str = ""


class File:
    """An image or another file that a tool returns: its bytes, or a path that is read once the tool has returned.

    Alone or anywhere in a result, it is replaced by a line with its name; the file is stored once next to the output,
    shown to people, and sent to models that accept its type. The type is detected from the bytes; ``media_type`` is
    used if that fails.
    """

    __slots__ = ("data", "media_type", "name")

    # Not a struct: that would be encoded as JSON with all its bytes, wherever it is in a result.
    def __init__(
        self, data: bytes | os.PathLike[str], *, media_type: str | None = None, name: str | None = None
    ) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview, os.PathLike)):
            raise TypeError(f"a file is bytes or a pathlib.Path, not a {type(data).__name__}")
        self.data: bytes | Path = Path(data) if isinstance(data, os.PathLike) else bytes(data)
        self.media_type = media_type
        # A path's name may contain bytes that are not text.
        shown_name = name or (self.data.name if isinstance(self.data, Path) else None)
        self.name = shown_name and shown_name.encode("utf-8", "replace").decode()

    def __repr__(self) -> str:
        return f"File({self.name or self.media_type or '…'})"

    @property
    def mark(self) -> str:
        """Return the text that replaces it in the output."""
        return f"[file {self.name}]" if self.name else "[file]"


class ToolOutput(msgspec.Struct, frozen=True):
    """The result of a tool: JSON for the model, and ``files``. ``about`` is JSON for people only, such as its
    ``change``."""

    value: Any
    about: Mapping[str, Any] | None = None
    files: tuple[File, ...] = ()


class _AbortListener:
    """A callback for an abort, until it is cancelled."""

    __slots__ = ("_registry", "call")

    def __init__(self, registry: dict[_AbortListener, None], call: Callable[[], None]) -> None:
        self.call = call
        self._registry = registry
        registry[self] = None

    def cancel(self) -> None:
        self._registry.pop(self, None)


class Signal:
    """The abort signal of a run. Tools check ``aborted`` or await ``wait``."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._listeners: dict[_AbortListener, None] = {}
        self.reason: str | None = None

    @property
    def aborted(self) -> bool:
        return self._event.is_set()

    def abort(self, reason: str) -> None:
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
            for listener in [*self._listeners]:
                try:
                    listener.call()
                except Exception:
                    # The other listeners must still be called.
                    log.exception("an abort listener of a tool failed")

    def on_abort(self, call: Callable[[], None]) -> Timer:
        """Call this on abort; immediately if already aborted. Cancelling the result removes the listener."""
        listener = _AbortListener(self._listeners, call)
        if self._event.is_set():
            call()
        return listener

    async def wait(self) -> str:
        await self._event.wait()
        return self.reason or "aborted"


class ChildOutcome(msgspec.Struct, frozen=True):
    """The end of a subagent's session, with its last text; ``about`` has its usage, for people."""

    session_id: str
    status: str
    text: str
    about: Mapping[str, Any] | None = None


class NextTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt for a session to continue with by itself: once, after some minutes or at a time, or by cron."""

    prompt: str
    in_minutes: int | None = None
    at: str | None = None
    cron: str | None = None
    timezone: str = "UTC"


async def _no_schedules(_: NextTurn) -> dict[str, Any]:
    raise ToolFailed("schedules are not available")


def _ignore_report(_: Any) -> None:
    """Ignore a report; the default."""


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """The information and functions a tool has while it runs; filled in by the run.

    ``metadata`` and ``owner`` are the session's; ``deps`` is the value given to ``clew.open``.
    ``permit`` checks a target that is found while the tool runs: the host of each hop of a fetch, each file a search
    opens. Targets that the rules deny raise ``PermissionDenied``. So do targets they would ask about, unless this
    call's own decision covers them: the target was judged, or is a path below a judged one. It is cheap, because a
    search checks every file.
    ``report`` shows people the output so far, a JSON value of the same type as the output; each replaces the one
    before, and some of many in a short time are left out. It may be called in any thread, and is cheap.
    ``judged`` are the targets the call's permission was decided on. A path that no longer resolves to one of them is
    refused; with None, for a host that calls tools by itself, every path goes through ``permit`` instead. ``spill`` is
    a folder outside the workspace for output that is too long; it is created on first use.
    """

    session_id: str
    call_id: str
    turn_id: str | None = None
    owner: str | None = None
    metadata: Mapping[str, Any] = {}
    deps: Any = None
    signal: Signal
    workspace: Path | None = None
    judged: tuple[Target, ...] | None = None
    spill: Path
    permit: Callable[[Target], Awaitable[None]]
    spawn_child: Callable[[str, str | None], Awaitable[ChildOutcome]]
    load_skill: Callable[[str], Awaitable[str]]
    recall: Callable[[str], Awaitable[str]]
    report: Callable[[Any], None] = _ignore_report
    schedule: Callable[[NextTurn], Awaitable[dict[str, Any]]] = _no_schedules
    state: dict[str, Any]
    """Values a tool stores for the session between calls (the todo list); in memory only."""
    max_output_chars: int = MAX_OUTPUT_CHARS
    """Maximum length of an output; a longer one is written to ``spill`` as a whole."""


class Tool(Protocol):
    """One tool. ``timeout_ms`` is the time limit for one call.

    It may have ``capabilities`` (:data:`Capabilities`) and ``preview`` (:data:`PreviewOf`). Without ``capabilities``
    nothing is known of what it uses: no rule on a capability allows its calls, and one that denies or asks makes them
    ask.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def input_schema(self) -> Mapping[str, Any]: ...

    @property
    def timeout_ms(self) -> int: ...

    @property
    def needs_workspace(self) -> bool:
        """Return whether it needs a workspace; other sessions are not offered this tool."""
        ...

    @property
    def asks_human(self) -> bool:
        """Return whether the call itself is a question: it is not executed, its output is the person's answer."""
        ...

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        """Return what this call would touch, with symlinks resolved. Must not change anything.

        Called with arguments that fit the schema. Raises ``ToolFailed`` if they name nothing that could be touched (a
        path with a NUL, an invalid URL); such a call has failed and needs no permission.
        """
        ...

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Run the call. Raises ``ToolFailed`` with a sentence for the model, ``PermissionDenied`` from ``permit``."""
        ...


def target_of_arguments(name: str, args: Mapping[str, Any]) -> Target:
    """Return the target of a call whose tool names none: its arguments on one line, with sorted keys, so that patterns
    can match them."""
    try:
        return Target(name, "plain", msgspec.json.encode(dict(args), order="deterministic").decode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed(f"the arguments are not JSON: {error}") from error


def declared_capabilities(tool: Tool) -> tuple[Capability, ...] | None:
    """Return the capabilities that a tool declares, None if it declares nothing. Raise ``TypeError`` for others."""
    if tool.name in CAPABILITIES:
        raise TypeError(f"a tool cannot be called {tool.name}, which is a capability")
    declared: Capabilities | None = getattr(tool, "capabilities", None)
    if declared is None:
        return None
    if isinstance(declared, str):
        raise TypeError(f"the capabilities of the tool {tool.name} must be a list or a mapping, not a text")
    if unknown := [str(name) for name in declared if name not in CAPABILITIES]:
        known = ", ".join(CAPABILITIES)
        raise TypeError(f"the tool {tool.name} declares the unknown capabilities {', '.join(unknown)}; use {known}")
    return tuple(name for name in CAPABILITIES if name in declared)
