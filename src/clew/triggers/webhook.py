"""Webhooks: doors for other programs, each with a name and a secret of its own."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from clew.errors import InvalidInput
from clew.triggers.routing import Routing

__all__ = ["Webhook", "check_name", "payload_of"]

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}", re.ASCII)


class Webhook(msgspec.Struct, frozen=True, kw_only=True):
    """Who knows ``secret`` may start a turn with what they send, after ``prompt``."""

    name: str
    secret: str
    created_at: int
    prompt: str | None = None
    paused: bool = False
    routing: Routing = Routing()

    @property
    def source(self) -> str:
        """What its events have as their source."""
        return f"hook:{self.name}"

    def __repr__(self) -> str:
        # A value in a log or a traceback must not give the secret away.
        return f"Webhook(name={self.name!r})"


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidInput("a webhook's name is 1 to 64 small letters, digits, dashes and underscores")
    return name


def payload_of(body: bytes) -> Any:
    """What was sent: a JSON value, else text."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput("a delivery is JSON or text in UTF-8") from error
    try:
        # Whole numbers stay whole, however long: one that cannot be kept is refused, not rounded.
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return text
