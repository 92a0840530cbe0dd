"""Hooks: where a host's own code may change, refuse, or watch what happens.

A hook that *may change* is awaited in its place: it returns a value to use instead, or None, and an exception refuses
what was about to happen with its reason. A hook that *observes* is told afterwards, in a task of its own: failing or
slow, it never touches the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal, get_args

from clew.errors import ClewError, InvalidInput

__all__ = ["CHANGING", "OBSERVING", "Hook", "HookName", "HookRefused", "Hooks"]

log = logging.getLogger("clew.hooks")

ChangingHook = Literal["message.user", "before_model_call", "before_tool_call", "before_compaction"]
ObservingHook = Literal[
    "session_create",
    "session_delete",
    "session_save",
    "after_model_call",
    "after_tool_call",
    "after_compaction",
    "turn_finished",
]
HookName = Literal[ChangingHook, ObservingHook]
Hook = Callable[[Any], Awaitable[Any]]

CHANGING: Final[frozenset[str]] = frozenset(get_args(ChangingHook))
OBSERVING: Final[frozenset[str]] = frozenset(get_args(ObservingHook))


class HookRefused(ClewError, code="refused_by_hook"):
    """A hook would not let it happen."""


class Hooks:
    """The hooks of one engine, called in the order they were added."""

    def __init__(self) -> None:
        self._hooks: dict[str, list[Hook]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, name: HookName, hook: Hook) -> None:
        if name not in CHANGING and name not in OBSERVING:
            known = ", ".join(sorted(CHANGING | OBSERVING))
            raise InvalidInput(f"there is no hook {name!r}; there are {known}")
        self._hooks.setdefault(name, []).append(hook)

    @property
    def see_requests(self) -> bool:
        """Whether any of them is shown what a model is sent."""
        return any(self._hooks.get(name) for name in ("before_model_call", "after_model_call"))

    async def change(self, name: ChangingHook, value: Any) -> Any:
        """The value as the hooks leave it. What they raise comes out as :class:`HookRefused`."""
        for hook in self._hooks.get(name, ()):
            try:
                changed = await hook(value)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                raise HookRefused(f"refused by a {name} hook: {error}") from error
            if changed is not None:
                value = changed
        return value

    def observe(self, name: ObservingHook, value: Any) -> None:
        """Tell the observers, now but elsewhere."""
        for hook in self._hooks.get(name, ()):
            task = asyncio.get_running_loop().create_task(self._call(name, hook, value))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _call(self, name: str, hook: Hook, value: Any) -> None:
        try:
            await hook(value)
        except Exception:
            log.exception("a %s hook failed", name)

    async def drain(self, timeout_s: float = 1.0) -> None:
        """Give observers a moment to end; then they are cancelled."""
        if self._tasks:
            _, pending = await asyncio.wait(set(self._tasks), timeout=timeout_s)
            for task in pending:
                task.cancel()
