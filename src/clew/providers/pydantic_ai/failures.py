"""Conversion of the library's errors to :class:`ProviderFailure`.

An error response is classified by its status and text. A failed connection may work later. An invalid stream, or one
that reports an error, may be retried only while nothing of it was used. Keys are removed from every message, and the
chain of causes is dropped if it contains a key.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NoReturn

from clew.providers.base import FailureCause, FailureKind, ProviderFailure
from clew.providers.failure import kind_of_status, parse_retry_after, says_account, says_overflow

__all__ = ["raise_failure"]

_LONGEST_TEXT: Final = 500
_KEYS: Final = re.compile(r"\b((?:sk|key|pk|rk|gsk|xai)[-_]|AIza)[-_A-Za-z0-9]{12,}")


def raise_failure(error: Exception, provider_id: str, *, began: bool, now_ms: int, secrets: Iterable[str]) -> NoReturn:
    """Raise the failure for an error. ``began``: part of the answer was used already."""
    hidden = [secret for secret in secrets if len(secret) >= 4]
    failure = _failure(error, provider_id, began=began, now_ms=now_ms, hidden=hidden)
    shown = "\n".join(f"{link} {link!r} {getattr(link, 'body', '')}" for link in _chain(error))
    if any(secret in shown for secret in hidden):
        raise failure from None
    raise failure from error


def _failure(error: Exception, provider_id: str, *, began: bool, now_ms: int, hidden: Iterable[str]) -> ProviderFailure:
    import httpx2
    from pydantic_ai import exceptions as theirs

    def failed(says: str, kind: FailureKind, **fields: Any) -> ProviderFailure:
        return ProviderFailure(_clean(f"{provider_id} {says}", hidden), kind=kind, provider_id=provider_id, **fields)

    senseless: FailureKind = "invalid" if began else "transient"
    if isinstance(error, theirs.ModelHTTPError):
        text = _words(error.body)
        kind = kind_of_status(error.status_code, text)
        if isinstance(error, theirs.ModelContextWindowExceededError):
            kind = "overflow"
        elif isinstance(error, theirs.ModelQuotaExceededError):
            kind = "auth"
        says = f"{'failed while it answered' if error.in_stream else 'answered'} {error.status_code}"
        headers = error.headers or {}
        wait_ms = parse_retry_after(headers.get("retry-after-ms"), now_ms, unit_ms=1)
        if wait_ms is None:
            wait_ms = parse_retry_after(headers.get("retry-after"), now_ms)
        says = f"{says}: {text}" if text else says
        cause: FailureCause | None = "no_credit" if kind == "auth" and says_account(text) else None
        return failed(says, kind, status=error.status_code, retry_after_ms=wait_ms, cause=cause)
    causes = list(_chain(error))
    unreadable = next((cause for cause in causes if isinstance(cause, httpx2.DecodingError)), None)
    if unreadable is not None:
        return failed(f"sent an unreadable response: {unreadable}", senseless, cause="broken_off")
    if isinstance(error, theirs.ModelConnectionError | httpx2.TransportError | OSError):
        # The innermost cause says what happened; the others say that something did.
        reason = str(causes[-1]) or type(causes[-1]).__name__
        says = f"{'broke the connection' if began else 'could not be reached'}: {reason}"
        return failed(says, "transient", cause="broken_off" if began else "unreachable")
    if isinstance(error, theirs.ModelAPIError):
        text = _words(error.body) or str(error)
        if says_overflow(text):
            return failed(f"failed while it answered: {text}", "overflow")
        if says_account(text):
            return failed(f"failed while it answered: {text}", "auth", cause="no_credit")
        return failed(f"failed while it answered: {text}", senseless, cause="provider_down")
    if isinstance(error, theirs.UserError):
        return failed(f"cannot take this request: {error}", "invalid")
    return failed(f"sent an invalid response: {type(error).__name__}: {error}", senseless, cause="broken_off")


def _words(body: object) -> str:
    """Return the message in the body of an error response, whose structure depends on the provider."""
    if isinstance(body, str) and body.lstrip().startswith("{"):
        # Mistral's client passes the body on unparsed.
        with contextlib.suppress(ValueError):
            body = json.loads(body)
    for _ in range(4):
        if not isinstance(body, Mapping):
            break
        inner = next(
            (body[key] for key in ("error", "message", "detail", "errors", "Error", "Message") if body.get(key)), None
        )
        if inner is None:
            break
        code = body.get("code")
        if isinstance(inner, str) and isinstance(code, str) and code not in inner:
            return f"{inner} ({code})"
        body = inner
    if isinstance(body, list) and body:
        return _words(body[0])
    return "" if body is None else str(body)


def _clean(text: str, hidden: Iterable[str]) -> str:
    for secret in hidden:
        text = text.replace(secret, "…")
    text = _KEYS.sub(lambda match: f"{match[1]}…", " ".join(text.split()))
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and its causes."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__
