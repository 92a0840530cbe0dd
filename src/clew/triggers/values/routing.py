"""Routing: the session that an event belongs to, and the values for creating it."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from clew.errors import InvalidInput
from clew.transcript.session import Model

__all__ = ["MAX_NAME", "RouteKind", "Routing", "check_routing"]

RouteKind = Literal["label", "routing_key"]
"""The session metadata keys that events can be routed by."""

MAX_NAME: Final = 200


class Routing(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The target of an event: a session by its id, label or routing key; without any, a new session each time.

    The other values are for a session that is created. ``model`` and ``agent`` also apply to an existing one.
    """

    session_id: str | None = None
    label: str | None = None
    key: str | None = None
    model: str | Model | None = None
    agent: str | None = None
    workspace_root: str | None = None
    title: str | None = None

    @property
    def name(self) -> tuple[RouteKind, str] | None:
        """The metadata key and value that identify the session."""
        if self.label is not None:
            return "label", self.label
        return None if self.key is None else ("routing_key", self.key)

    def chosen(self) -> dict[str, Any]:
        """Return the target that was given, for display."""
        targets = {"session_id": self.session_id, "label": self.label, "key": self.key}
        return {name: value for name, value in targets.items() if value is not None}


def check_routing(routing: Routing, *, needed: bool = False) -> Routing:
    """Return the routing; raise ``InvalidInput`` for an invalid one."""
    chosen = routing.chosen()
    if len(chosen) > 1:
        raise InvalidInput("name one of session_id, label and key, not several")
    if needed and not chosen:
        raise InvalidInput("routing needs a session_id, a label or a key")
    for name in ("label", "key"):
        value = chosen.get(name)
        if value is not None and not (value.strip() and len(value) <= MAX_NAME and value.isprintable()):
            raise InvalidInput(f"a {name} is printable text of 1 to {MAX_NAME} characters")
    return routing
