"""When a recorder writes the parts that have grown: limits in characters and milliseconds.

At the end of a part or a step, whenever the text has doubled, after some time, and at the end; a part of more than
64 KB otherwise only once a quarter of it is new, so the cost of a reply stays proportional to its length. The time is
``parts_lag_ms`` for a few KB, then in proportion to the length: a second at 64 KB, then five for each 64 KB. So a
program that reads the parts alone is about that far behind. Streams due at the same time take turns, and wait for up to
a second while the store is busy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from clew.clock import Clock

__all__ = ["FOLD_TURN_MS", "FoldTiming"]

_FOLD_CHARS: Final = 1024
_FOLD_MS: Final = 1_000
_FOLD_MS_PER_LONG_TEXT: Final = 5_000
_LONG_TEXT_CHARS: Final = 64 * 1024
_FOLD_SHARE: Final = 4
_FOLD_PATIENCE: Final = 3
FOLD_TURN_MS: Final = 20


class FoldTiming:
    """The text since the last fold, and whether the next fold is due.

    ``grown`` counts the characters since then, ``unfolded`` those that are only in the journal. ``due`` requests a fold
    regardless of both. Streams that start together get different ``phase`` values, or their folds would delay the
    chunks of all of them.
    """

    def __init__(self, clock: Clock, phase: float, lag_ms: float = _FOLD_MS) -> None:
        self._clock = clock
        self._lag_ms = min(lag_ms, _FOLD_MS) if lag_ms > 0 else _FOLD_MS
        self.grown = self.unfolded = 0
        self.due = False
        self._folded_chars = 0
        self._folded_at = clock.monotonic_ms() - self._lag_ms * phase

    def note_fold(self) -> None:
        """Start again after a fold."""
        self._folded_chars += self.grown
        self.grown = self.unfolded = 0
        self._folded_at = self._clock.monotonic_ms()
        self.due = False

    def wants_fold(self, dirty_size: Callable[[], int], takes_fold: Callable[[], bool]) -> bool:
        """Return whether to fold now.

        A fold rewrites whole parts: folding after every small addition would cost the square of a long part's length.
        """
        waited = self._clock.monotonic_ms() - self._folded_at
        due = self.due or self.grown >= max(_FOLD_CHARS, self._folded_chars)
        if not due and waited < self._lag_ms:
            return False
        size = dirty_size()
        limit = self.limit_ms(size)
        if waited < limit and not (due and (size <= _LONG_TEXT_CHARS or self.unfolded * _FOLD_SHARE >= size)):
            return False
        return waited >= max(limit, _FOLD_MS) * _FOLD_PATIENCE or takes_fold()

    def is_over(self, size: int) -> bool:
        """Return whether this many characters have been unfolded for the maximum time."""
        return self._clock.monotonic_ms() - self._folded_at >= self.limit_ms(size)

    def limit_ms(self, size: int) -> float:
        """Return how long this many characters may stay unfolded, in proportion to their number."""
        times = size // _LONG_TEXT_CHARS
        return _FOLD_MS_PER_LONG_TEXT * times if times else max(self._lag_ms, _FOLD_MS * size / _LONG_TEXT_CHARS)
