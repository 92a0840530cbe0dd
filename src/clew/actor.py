"""The actor of an operation and the front it came through: both are stored with the answer to a pending call."""

from __future__ import annotations

import contextlib
import getpass
from collections.abc import Iterator
from contextvars import Context, ContextVar, copy_context
from typing import Any, Literal, TypeAlias

import msgspec

__all__ = [
    "ADMIN",
    "HOST",
    "Actor",
    "Via",
    "acting",
    "acting_as",
    "answer_note",
    "current_actor",
    "local_user",
    "without_actor",
]

Via: TypeAlias = Literal["http", "chat", "acp", "cli", "library", "rule", "mode", "abort", "branch"]
"""The front an answer came through, or what answered in place of a person: a rule, a mode, an abort, a branch."""
ADMIN = "admin"
"""The holder of a server's own token, as a name."""
HOST = "host"
"""The program that clew is embedded in, where it names no owner."""


class Actor(msgspec.Struct, frozen=True):
    """A person or program by name, and the front it acts through."""

    name: str
    via: Via


_actor: ContextVar[Actor | None] = ContextVar("clew_actor", default=None)


@contextlib.contextmanager
def acting_as(name: str, via: Via) -> Iterator[None]:
    """Set the actor until the block ends, in this task and in those it starts."""
    token = _actor.set(Actor(name, via))
    try:
        yield
    finally:
        _actor.reset(token)


def acting() -> Actor | None:
    """Return the actor that a front has set; None where none has."""
    return _actor.get()


def current_actor(owner: str | None) -> Actor:
    """Return the actor that a front has set, else the host, under the name of the ``owner`` whose engine it uses."""
    return _actor.get() or Actor(owner or HOST, "library")


def without_actor() -> Context:
    """Return the current context without an actor: what a run does by itself is not done for a person."""
    context = copy_context()
    context.run(_actor.set, None)
    return context


def local_user() -> str:
    """Return the name of the user who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container may run as a number without a name; Windows has no `pwd`
        return "local user"


def answer_note(actor: Actor, now: int) -> dict[str, Any]:
    """Return what is stored with an answer: who gave it, through which front, and when."""
    return {"answered_by": actor.name, "via": actor.via, "answered_at": now}
