"""Retries of failed model calls and their delays. Pure."""

from __future__ import annotations

from typing import Final

from clew.providers.base import ProviderFailure

__all__ = ["MAX_ATTEMPTS", "delay_ms"]

MAX_ATTEMPTS: Final = 5
_FIRST_MS: Final = 1_000
_LONGEST_MS: Final = 60_000
_LONGEST_ASKED_MS: Final = 120_000


def delay_ms(failure: ProviderFailure, attempt: int, chance: float) -> int | None:
    """Return the delay after failed attempt number ``attempt`` (from 1); None if the call is not to be retried.

    ``chance`` from 0 to 1 spreads callers out: the delay is between half and all of the step. A delay requested by the
    provider is used up to two minutes; for a longer one there is no retry.
    """
    if failure.kind != "transient" or attempt >= MAX_ATTEMPTS:
        return None
    if failure.retry_after_ms is not None:
        return failure.retry_after_ms if 0 <= failure.retry_after_ms <= _LONGEST_ASKED_MS else None
    step = min(_FIRST_MS * 2 ** (attempt - 1), _LONGEST_MS)
    return int(step * (0.5 + chance / 2))
