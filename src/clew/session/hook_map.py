"""The type of each hook's value, for type checkers and for callers that pass hooks by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypedDict, TypeVar

from clew.compaction.plan import Plan
from clew.providers.base import ModelRequest, StepEnd
from clew.session.context.compact import Compacted
from clew.session.hooks import HookContext
from clew.session.prompt.submission import TurnOutcome
from clew.session.turn.calls import ToolCallValue
from clew.transcript.message import MessageRow
from clew.transcript.session import Session

__all__ = ["Changing", "HookMap", "Observing"]

V = TypeVar("V")

Changing: TypeAlias = Callable[[V], Awaitable[V | None]] | Callable[[V, HookContext], Awaitable[V | None]]
"""Returns the value to use instead, or None; an exception refuses the operation."""
Observing: TypeAlias = Callable[[V], Awaitable[object]] | Callable[[V, HookContext], Awaitable[object]]

HookMap = TypedDict(
    "HookMap",
    {
        # The message of a prompt, before it is stored. A queued prompt is passed when it is fired: changed metadata and
        # parts are stored then. No part may be removed from it, and a refusal cancels it.
        "message.user": Changing[MessageRow],
        # Every model call; ``purpose`` is ``answer``, ``subagent``, ``title`` or ``summary``. The returned request is
        # sent. A refusal fails the turn; a refused title or summary is not made.
        "before_model_call": Changing[ModelRequest],
        # A tool call before its permission is decided. The model is told the reason of a refusal.
        "before_tool_call": Changing[ToolCallValue],
        # A planned compaction. Only ``focus`` is worth changing; a refusal leaves the session as it is.
        "before_compaction": Changing[Plan],
        # A session was created.
        "session_create": Observing[Session],
        # A session was deleted.
        "session_delete": Observing[Session],
        # The id of a session after each durable change of it; for a growing message, at the end of its step.
        "session_save": Observing[str],
        # A model call that ended well.
        "after_model_call": Observing[tuple[ModelRequest, StepEnd]],
        # A tool call and the chunk of its result, as a dict.
        "after_tool_call": Observing[tuple[ToolCallValue, dict[str, Any]]],
        # The result of a compaction.
        "after_compaction": Observing[Compacted],
        # The outcome of a turn's run, also when the turn waits for a person.
        "turn_finished": Observing[TurnOutcome],
    },
    total=False,
)
"""A hook under each name, typed by the value it receives."""
