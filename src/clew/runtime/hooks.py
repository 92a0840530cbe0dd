"""Hooks: where a host's own code may change, refuse, or watch what happens.

A hook that *may change* is awaited in its place: it returns a value to use instead, or None, and an exception refuses
what was about to happen with its reason. A hook that *observes* is told afterwards, in a task of its own: failing or
slow, it never touches the run.
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
    """Where a hook is called: for which session, in which turn where there is one, and with what of the host's own.

    ``metadata`` is the session's. ``deps`` is what the host gave to ``clew.open``.
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
    """A hook would not let it happen."""


class Hooks:
    """The hooks of one engine, called in the order they were added."""

    def __init__(self, deps: Any = None) -> None:
        self._deps = deps
        self._hooks: dict[str, list[Callable[[Any, HookContext], Awaitable[Any]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, name: HookName, hook: Hook) -> None:
        if name not in CHANGING and name not in OBSERVING:
            known = ", ".join(sorted(CHANGING | OBSERVING))
            raise InvalidInput(f"there is no hook {name!r}; there are {known}")
        try:
            inspect.signature(hook).bind(None, None)
            called: Any = hook
        except TypeError:
            # It does not want to know where it is.
            called = lambda value, _: hook(value)  # type: ignore[call-arg]  # noqa: E731
        self._hooks.setdefault(name, []).append(called)

    @property
    def change_requests(self) -> bool:
        """Whether any of them has a say in what a model is sent."""
        return bool(self._hooks.get("before_model_call"))

    @property
    def see_requests(self) -> bool:
        """Whether any of them is shown what a model is sent."""
        return any(self._hooks.get(name) for name in ("before_model_call", "after_model_call"))

    async def change(self, name: ChangingHook, value: V, session: Session, turn_id: str | None = None) -> V:
        """The value as the hooks leave it. What they raise comes out as :class:`HookRefused`."""
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
                raise HookRefused(f"refused: a {name} hook gave back {kinds[0]}; it gives back {kinds[1]}, or None")
            if changed is not None:
                value = changed
        return value

    def observe(self, name: ObservingHook, value: Any, session: Session | str, turn_id: str | None = None) -> None:
        """Tell the observers, now but elsewhere."""
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
        """Give observers a moment to end; then they are cancelled."""
        if self._tasks:
            _, pending = await asyncio.wait(set(self._tasks), timeout=timeout_s)
            for task in pending:
                task.cancel()
