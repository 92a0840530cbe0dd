"""The tool contract: what a model may ask for, and what a tool may reach.

A tool is a name, a description, a JSON Schema for its arguments, and a coroutine. It says beforehand *what it would
touch* (:meth:`Tool.targets`), so that permissions are decided on the real thing: resolved paths, the parsed shell
line, the host. While it runs it reaches upwards only through its :class:`ToolContext`. A tool that fails raises
``ToolFailed`` with a sentence for the model; its output is JSON, and output too large or not text is described and
put beside, never dumped.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from clew.clock import Timer
from clew.errors import ToolFailed
from clew.transcript.rule import Target

__all__ = [
    "DEFAULT_TIMEOUT_MS",
    "MAX_OUTPUT_CHARS",
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
    "target_of_arguments",
]

log = logging.getLogger("clew.tools")

DEFAULT_TIMEOUT_MS: Final = 120_000
MAX_OUTPUT_CHARS: Final = 30_000


TargetsOf: TypeAlias = Callable[[Mapping[str, Any], Path | None], Sequence[Target]]
"""What a call with these arguments would touch in this workspace; see :meth:`Tool.targets`."""

PreviewOf: TypeAlias = Callable[[Mapping[str, Any], Path | None], "Change | None"]
"""What a call with these arguments would change, for whoever is asked about it. Reads the disk; changes nothing."""


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call makes of a text file: a unified difference, counted; ``note`` says what else there is."""

    diff: str
    added: int
    removed: int
    note: str = ""


class File:
    """A picture or another file that a tool gives back: its bytes, or a path, read once the tool has returned.

    Alone or anywhere in a result: a line with its name stands there, and the file is stored beside it once, shown to
    people, and sent to models that take its kind. What it is its bytes say; ``media_type`` counts where they do not.
    """

    __slots__ = ("data", "media_type", "name")

    # No struct: as one it would be JSON with all its bytes in it, wherever it stands in a result.
    def __init__(
        self, data: bytes | os.PathLike[str], *, media_type: str | None = None, name: str | None = None
    ) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview, os.PathLike)):
            raise TypeError(f"a file is bytes or a pathlib.Path, not a {type(data).__name__}")
        self.data: bytes | Path = Path(data) if isinstance(data, os.PathLike) else bytes(data)
        self.media_type = media_type
        # A path's name may hold bytes that are no text.
        named = name or (self.data.name if isinstance(self.data, Path) else None)
        self.name = named and named.encode("utf-8", "replace").decode()

    def __repr__(self) -> str:
        return f"File({self.name or self.media_type or '…'})"

    @property
    def mark(self) -> str:
        """What stands for it in the output."""
        return f"[file {self.name}]" if self.name else "[file]"


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool gives back: JSON for the model, and ``files``. ``about`` is JSON for people alone, such as its
    ``change``."""

    value: Any
    about: Mapping[str, Any] | None = None
    files: tuple[File, ...] = ()


class _Hearer:
    """Somebody who is to be told of an abort, until he is not any more."""

    __slots__ = ("_among", "call")

    def __init__(self, among: dict[_Hearer, None], call: Callable[[], None]) -> None:
        self.call = call
        self._among = among
        among[self] = None

    def cancel(self) -> None:
        self._among.pop(self, None)


class Signal:
    """Tells a tool that its run was aborted. Checked by ``aborted``, awaited by ``wait``."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._hearers: dict[_Hearer, None] = {}
        self.reason: str | None = None

    @property
    def aborted(self) -> bool:
        return self._event.is_set()

    def abort(self, reason: str) -> None:
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
            for hearer in [*self._hearers]:
                try:
                    hearer.call()
                except Exception:
                    # The others have to hear of it all the same.
                    log.exception("a tool that was told of an abort failed")

    def on_abort(self, call: Callable[[], None]) -> Timer:
        """Call this when it is aborted; at once, where it was already. Cancelling takes that back."""
        hearer = _Hearer(self._hearers, call)
        if self._event.is_set():
            call()
        return hearer

    async def wait(self) -> str:
        await self._event.wait()
        return self.reason or "aborted"


class ChildOutcome(msgspec.Struct, frozen=True):
    """How a subagent's session ended, and what it said last; ``about`` is what it took, for people."""

    session_id: str
    status: str
    text: str
    about: Mapping[str, Any] | None = None


class NextTurn(msgspec.Struct, frozen=True, kw_only=True):
    """When a session is to go on by itself, and with what: once, in so many minutes or at a time, or by cron."""

    prompt: str
    in_minutes: int | None = None
    at: str | None = None
    cron: str | None = None
    timezone: str = "UTC"


async def _nobody(_: NextTurn) -> dict[str, Any]:
    raise ToolFailed("nothing here keeps schedules")


def _unheard(_: Any) -> None:
    """Nobody looks on."""


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool may know and reach while it runs; filled in by the run.

    ``metadata`` and ``owner`` are the session's; ``deps`` is what the host gave to ``clew.open``.
    ``permit`` asks once more about a target as it is met while the tool runs: the host of each hop of a fetch, each
    file a search opens. What the rules deny raises ``PermissionDenied``, and so does what they would ask about,
    unless this call's own judgement covers it: the target was among those judged, or is a path below a judged one.
    A search asks once a file, so the answer should be a cheap one.
    ``report`` shows people what there is so far, a JSON value of the same kind as the output; each takes the place of
    the one before, and of many in a short time some are left out. It may be called in any thread, and costs little.
    ``judged`` are the targets the call was judged on. A path that no longer resolves to one of them is refused; with
    None, for a host that calls tools by itself, every path goes through ``permit`` instead. ``spill`` is a folder,
    outside the workspace, where a tool puts output too long to hand over; it is made when first used.
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
    report: Callable[[Any], None] = _unheard
    schedule: Callable[[NextTurn], Awaitable[dict[str, Any]]] = _nobody
    state: dict[str, Any]
    """What a tool keeps for the session between calls (the todo list); volatile."""
    max_output_chars: int = MAX_OUTPUT_CHARS
    """How long an output may be; the whole of a longer one goes to ``spill``."""


class Tool(Protocol):
    """One tool. ``timeout_ms`` is the watchdog's limit for one call."""

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
        """A session without a workspace is not offered this tool."""
        ...

    @property
    def asks_human(self) -> bool:
        """The call itself is a question: it is not executed, its output is the human's answer."""
        ...

    def targets(self, args: Mapping[str, Any], workspace: Path | None) -> Sequence[Target]:
        """What this call would touch, as it really is: symlinks resolved. Must not change anything.

        Called with arguments that fit the schema. Raises ``ToolFailed`` when they name nothing that could be touched
        (a path with a NUL, a URL that is none); such a call has failed and needs no permission.
        """
        ...

    async def execute(self, args: Mapping[str, Any], context: ToolContext) -> ToolOutput:
        """Do it. Raises ``ToolFailed`` with a sentence for the model, ``PermissionDenied`` from ``permit``."""
        ...


def target_of_arguments(name: str, args: Mapping[str, Any]) -> Target:
    """What a call touches whose tool says no more: its arguments, on one line and with keys in order, so that a pattern
    can be written for them."""
    try:
        return Target(name, "plain", msgspec.json.encode(dict(args), order="deterministic").decode())
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolFailed(f"the arguments are not JSON: {error}") from error
