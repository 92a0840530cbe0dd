"""Routing: which session something from outside belongs to, and what a session is made of when there is none yet."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from clew.errors import InvalidInput
from clew.transcript.session import Model

__all__ = ["MAX_NAME", "RouteKind", "Routing", "check_routing"]

RouteKind = Literal["label", "routing_key"]
"""The two metadata keys of a session that something can be routed by."""

MAX_NAME: Final = 200


class Routing(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Where to: a session by its id, by its label, or by a routing key; without any, a new session each time.

    The rest is what a session that has to be made gets. ``model`` and ``agent`` also answer in one that is there.
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
        """The metadata key and its value by which the session is looked for."""
        if self.label is not None:
            return "label", self.label
        return None if self.key is None else ("routing_key", self.key)

    def chosen(self) -> dict[str, Any]:
        """The one way that was chosen, as it is shown."""
        ways = {"session_id": self.session_id, "label": self.label, "key": self.key}
        return {name: value for name, value in ways.items() if value is not None}


def check_routing(routing: Routing, *, needed: bool = False) -> Routing:
    """The routing, or why it cannot be one."""
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
