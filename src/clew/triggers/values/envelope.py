"""The envelope: metadata of a user message about the trigger that sent it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

__all__ = ["Trigger", "safe_headers"]

_ALLOWED: Final = re.compile(r"content-type|user-agent|x-[a-z0-9-]{1,60}")
# Headers with credentials or network addresses are never stored.
_SECRET: Final = re.compile(
    r"sign|token|key|secret|auth|cookie|session|pass|pwd|credential|forwarded|-ip\b"
    r"|jwt|assertion|bearer|hmac|digest|cert|csrf|xsrf|principal|ur[il]\b"
)
_MAX_HEADERS: Final = 20
_MAX_VALUE_CHARS: Final = 200


class Trigger(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The trigger of a turn and its time. Stored in the metadata of its user message as ``trigger``."""

    source: str
    fired_at: int
    schedule_id: str | None = None
    delivery_id: str | None = None
    headers: dict[str, str] | None = None
    auth_subject: str | None = None

    def metadata(self) -> dict[str, Any]:
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value


def safe_headers(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the headers that describe a request, without any that could contain a secret."""
    safe: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if _ALLOWED.fullmatch(name) and not _SECRET.search(name) and value.isprintable() and len(safe) < _MAX_HEADERS:
            safe[name] = value[:_MAX_VALUE_CHARS]
    return safe
