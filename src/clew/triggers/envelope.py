"""The envelope: what a user message says about the trigger that sent it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

__all__ = ["Trigger", "safe_headers"]

_KEPT: Final = re.compile(r"content-type|user-agent|x-[a-z0-9-]{1,60}")
# What proves who sent it, or leads to who it was for, is nobody's business once it was looked at.
_SECRET: Final = re.compile(
    r"sign|token|key|secret|auth|cookie|session|pass|pwd|credential|forwarded|-ip\b"
    r"|jwt|assertion|bearer|hmac|digest|cert|csrf|xsrf|principal|ur[il]\b"
)
_MOST: Final = 20
_LONGEST: Final = 200


class Trigger(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What fired a turn, and when. Stands in the metadata of its user message as ``trigger``."""

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
    """The headers of a request that tell what it is about; never one that could hold a secret."""
    kept: dict[str, str] = {}
    for name, value in headers:
        name = name.lower()
        if _KEPT.fullmatch(name) and not _SECRET.search(name) and value.isprintable() and len(kept) < _MOST:
            kept[name] = value[:_LONGEST]
    return kept
