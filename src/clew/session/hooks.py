"""Hooks: custom code of the host that changes, refuses or observes operations.

A *changing* hook is awaited before the operation: it returns a value to use instead, or None, and an exception refuses
the operation with its reason. An *observing* hook is called afterwards in its own task: whether it fails or is slow,
it never affects the run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, TypeVar, get_args

import msgspec

from clew.errors import ClewError, InvalidInput
from clew.transcript.session import Session

__all__ = ["CHANGING", "OBSERVING", "Hook", "HookContext", "HookName", "HookRefused", "Hooks"]

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


class HookContext(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a hook call: its session, its turn if there is one, and the host's dependencies.

    ``metadata`` is the session's. ``deps`` is what the host passed to ``clew.open``.
    """

    session_id: str
    turn_id: str | None = None
    owner: str | None = None
    metadata: Mapping[str, Any] = {}
    deps: Any = None


Hook: TypeAlias = Callable[[Any], Awaitable[Any]] | Callable[[Any, HookContext], Awaitable[Any]]
V = TypeVar("V")

CHANGING: Final[frozenset[str]] = frozenset(get_args(ChangingHook))
OBSERVING: Final[frozenset[str]] = frozenset(get_args(ObservingHook))


class HookRefused(ClewError, code="refused_by_hook"):
    """A hook refused the operation."""


class Hooks:
    """The hooks of one engine, called in the order they were added."""

    def __init__(self, deps: Any = None) -> None:
        self._deps = deps
        self._hooks: dict[str, list[Callable[[Any, HookContext], Awaitable[Any]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, name: HookName, hook: Hook) -> None:
        if name not in CHANGING and name not in OBSERVING:
            known = ", ".join(sorted(CHANGING | OBSERVING))
            raise InvalidInput(f"there is no hook {name!r}; the hooks are {known}")
        try:
            inspect.signature(hook).bind(None, None)
            called: Any = hook
        except TypeError:
            # The hook takes no context.
            called = lambda value, _: hook(value)  # type: ignore[call-arg]  # noqa: E731
        self._hooks.setdefault(name, []).append(called)

    @property
    def change_requests(self) -> bool:
        """Return whether any hook may change model requests."""
        return bool(self._hooks.get("before_model_call"))

    @property
    def see_requests(self) -> bool:
        """Return whether any hook receives model requests."""
        return any(self._hooks.get(name) for name in ("before_model_call", "after_model_call"))

    async def change(self, name: ChangingHook, value: V, session: Session, turn_id: str | None = None) -> V:
        """Return the value after all hooks. Their exceptions are raised as :class:`HookRefused`."""
        for hook in self._hooks.get(name, ()):
            try:
                changed = await hook(value, self._context(session, turn_id))
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                raise HookRefused(f"refused: a {name} hook was cancelled from inside") from None
            except Exception as error:
                raise HookRefused(f"refused by a {name} hook: {error}") from error
            if changed is not None and not isinstance(changed, type(value)):
                kinds = type(changed).__name__, type(value).__name__
                raise HookRefused(f"refused: a {name} hook returned {kinds[0]}; it must return {kinds[1]} or None")
            if changed is not None:
                value = changed
        return value

    def observe(self, name: ObservingHook, value: Any, session: Session | str, turn_id: str | None = None) -> None:
        """Call the observers, each in its own task."""
        for hook in self._hooks.get(name, ()):
            task = asyncio.get_running_loop().create_task(
                self._call(name, hook, value, self._context(session, turn_id))
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _context(self, session: Session | str, turn_id: str | None) -> HookContext:
        if isinstance(session, str):
            return HookContext(session_id=session, turn_id=turn_id, deps=self._deps)
        return HookContext(
            session_id=session.id, turn_id=turn_id, owner=session.owner, metadata=session.metadata, deps=self._deps
        )

    async def _call(
        self, name: str, hook: Callable[[Any, HookContext], Awaitable[Any]], value: Any, context: HookContext
    ) -> None:
        try:
            await hook(value, context)
        except Exception:
            log.exception("a %s hook failed", name)

    async def drain(self, timeout_s: float = 1.0) -> None:
        """Wait briefly for observers, then cancel them."""
        if self._tasks:
            _, pending = await asyncio.wait(set(self._tasks), timeout=timeout_s)
            for task in pending:
                task.cancel()
