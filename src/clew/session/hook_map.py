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
        "message.user": Changing[MessageRow],
        "before_model_call": Changing[ModelRequest],
        "before_tool_call": Changing[ToolCallValue],
        "before_compaction": Changing[Plan],
        "session_create": Observing[Session],
        "session_delete": Observing[Session],
        "session_save": Observing[str],
        "after_model_call": Observing[tuple[ModelRequest, StepEnd]],
        "after_tool_call": Observing[tuple[ToolCallValue, dict[str, Any]]],
        "after_compaction": Observing[Compacted],
        "turn_finished": Observing[TurnOutcome],
    },
    total=False,
)
"""A hook under each name, typed by the value it receives."""
