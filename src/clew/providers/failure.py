"""Rules for HTTP errors of model calls, which all providers share. Pure.

They decide which status is transient, which means that the request is too large, and which delay ``retry-after``
requests. Retries are decided elsewhere.
"""

from __future__ import annotations

import email.utils
import math
import re
from typing import Final

from clew.providers.base import FailureKind

__all__ = ["LONGEST_RETRY_AFTER_MS", "kind_of_status", "parse_retry_after", "says_account", "says_overflow"]

LONGEST_RETRY_AFTER_MS: Final = 24 * 3600 * 1000
"""A longer delay is reported as a day, which is already longer than any caller waits."""

_TRANSIENT: Final = frozenset({408, 409, 425, 429})
_ACCOUNT: Final = frozenset({401, 402, 403})
_MAY_OVERFLOW: Final = frozenset({400, 413, 422})

_OVERFLOW: Final = re.compile(
    r"context.?(length|window|size)"
    r"|maximum context"
    r"|prompt is too long"
    r"|(input|prompt|request|message)s?.{0,40}too (long|large|many tokens)"
    r"|too many (input |prompt )?tokens"
    r"|reduce the length"
    r"|tokens?.{0,60}exceeds?"
    r"|exceeds?.{0,60}tokens?"
    r"|request_too_large",
    re.IGNORECASE | re.DOTALL,
)
_ACCOUNT_WORDS: Final = re.compile(
    r"insufficient_quota|billing|credit balance|credits? exhausted|spend.?limit", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"[0-9.eE+-]+")
_RATE_WORDS: Final = re.compile(r"per (minute|hour|day|second)|rate.?limit|\b(tpm|rpm)\b", re.IGNORECASE)


def kind_of_status(status: int, text: str = "") -> FailureKind:
    """Return the kind of failure for a status and the text of the error response."""
    if status in _ACCOUNT or (status == 429 and says_account(text)):
        return "auth"
    if status in _TRANSIENT or status >= 500:
        return "transient"
    if status in _MAY_OVERFLOW and says_overflow(text):
        return "overflow"
    return "invalid" if 400 <= status < 500 else "unknown"


def says_overflow(text: str) -> bool:
    """Return whether an error says that the request exceeds the model's window. Rate limits mention tokens, too."""
    return _OVERFLOW.search(text) is not None and _RATE_WORDS.search(text) is None


def says_account(text: str) -> bool:
    """Return whether an error says that the account is exhausted, for which waiting does not help."""
    return _ACCOUNT_WORDS.search(text) is not None


def parse_retry_after(text: str | None, now_ms: int, *, unit_ms: int = 1000) -> int | None:
    """Return ``retry-after``, a decimal number or an HTTP date, in milliseconds; None for anything else.

    A number is in units of ``unit_ms``. The result is never negative and at most a day, whatever a server sends.
    """
    if text is None:
        return None
    text = text.strip()[:100]
    try:
        wait_ms = float(text) * unit_ms if _NUMBER.fullmatch(text) else _until(text, now_ms)
    except ValueError:
        return None
    if wait_ms is None or math.isnan(wait_ms):
        return None
    return int(min(max(wait_ms, 0.0), LONGEST_RETRY_AFTER_MS))


def _until(text: str, now_ms: int) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
        return moment.timestamp() * 1000 - now_ms
    except (ValueError, TypeError, OverflowError, OSError):
        return None
