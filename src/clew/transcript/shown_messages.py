"""The messages of a session as a reader was shown them, who cannot be shown anything twice: a terminal, an editor.

A stream may begin a message again from its first part, and a stored message may be ahead of what was shown. The reader
is shown what is new of either, as chunks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from clew.transcript.chunk import TERMINAL_CHUNKS, Chunk, FinishStep, Start, StartStep
from clew.transcript.fold import Fold
from clew.transcript.replay import catch_up
from clew.transcript.stream_cursor import RESET

__all__ = ["ShownChunk", "ShownMessages"]

MAX_GROWING: Final = 4
"""The number of newest messages that may still grow."""
MAX_MESSAGES: Final = 10_000
ShownChunk = tuple[int | None, Chunk]
"""A chunk, and the index of the part it belongs to."""


class ShownMessages:
    """Takes streams and stored messages, and returns each chunk once."""

    def __init__(self) -> None:
        # By id; None for messages that do not grow any more, or whose writer is the reader.
        self._shown: dict[str, Fold | None] = {}
        self._now = self._again = _fold("")
        self._is_again = False
        self._ends: list[Chunk] = []
        self._in_step = self._again_in_step = False

    def __contains__(self, message_id: str) -> bool:
        return message_id in self._shown

    def part(self, message_id: str, index: int) -> dict[str, Any]:
        """Return a part of a growing message as it was shown."""
        fold = self._shown[message_id]
        assert fold is not None
        return fold.part(index)

    def mark(self, message_id: str, parts: Sequence[Mapping[str, Any]] | None) -> None:
        """Mark these parts of a message as shown; None: all that it will have."""
        self._keep(message_id, None if parts is None else _fold(message_id, parts))

    def _keep(self, message_id: str, fold: Fold | None) -> None:
        self._shown.pop(message_id, None)
        self._shown[message_id] = fold
        growing = [id_ for id_, shown in self._shown.items() if shown is not None]
        self._shown |= dict.fromkeys(growing[:-MAX_GROWING])
        while len(self._shown) > MAX_MESSAGES:
            self._shown.pop(next(iter(self._shown)))

    def catch_up(self, message_id: str, parts: Sequence[Mapping[str, Any]]) -> list[ShownChunk]:
        """Return what is new in a stored message; raise ``Diverged`` if it is not what was shown of it.

        If something is, a stream of the message has to begin again: its position would be behind.
        """
        shown = self._shown.setdefault(message_id, _fold(message_id))
        if shown is None:
            return []
        chunks = catch_up(shown.parts, parts, in_step=False, open_ids=shown.open_ids)
        new = [(shown.apply_shown(chunk), chunk) for chunk in chunks]
        if shown.part_count < len(parts):
            # Some parts have no chunk.
            self._keep(message_id, _fold(message_id, parts))
        return new

    def take(self, chunk: Chunk, cursor: str | None) -> list[ShownChunk]:
        """Return what is new with a chunk of a stream. ``cursor`` is the position after it."""
        if chunk.type == RESET:
            return []
        if isinstance(chunk, Start):
            message_id = str(chunk.message_id)
            known = self._shown.get(message_id)
            self._is_again = known is not None
            self._again, self._again_in_step = _fold(message_id), False
            self._now = known or self._again
            if known is None:
                self._in_step = False
                self._keep(message_id, self._now)
        if not self._is_again:
            return self._show([chunk])
        self._again.apply_shown(chunk)
        if isinstance(chunk, StartStep | FinishStep):
            self._again_in_step = isinstance(chunk, StartStep)
        self._ends += [chunk] if chunk.__class__ in TERMINAL_CHUNKS else []
        # What was shown before ends at a position; from here on each chunk is new.
        return [] if cursor is None else self.end()

    def end(self) -> list[ShownChunk]:
        """Return what is new at the end of a stream."""
        if not self._is_again:
            return []
        again, now = self._again, self._now
        self._is_again, ends, self._ends = False, self._ends, []
        open_ids = {**again.open_ids, **now.open_ids}
        shown = self._show(catch_up(now.parts, again.parts, in_step=self._in_step, open_ids=open_ids))
        shown += self._show([*([FinishStep()] if self._in_step and not self._again_in_step else []), *ends])
        self._now = again
        self._keep(again.message_id, again)
        return shown

    def _show(self, chunks: Iterable[Chunk]) -> list[ShownChunk]:
        shown: list[ShownChunk] = []
        for chunk in chunks:
            shown.append((self._now.apply_shown(chunk), chunk))
            if isinstance(chunk, StartStep | FinishStep):
                self._in_step = isinstance(chunk, StartStep)
        return shown


def _fold(message_id: str, parts: Sequence[Mapping[str, Any]] = ()) -> Fold:
    return Fold(message_id, parts=parts)
