"""A list to choose from, filtered by typing and navigated with the arrow keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from clew.fronts.cli.safe_text import plain

__all__ = ["Picker"]


class Picker:
    """An open list. ``chosen`` is the chosen value, or None if cancelled."""

    def __init__(self, title: str, choices: Sequence[tuple[str, str]]) -> None:
        self.title = title
        self.chosen: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._choices = choices
        self._typed = ""
        self._at = 0

    def _matching(self) -> list[tuple[str, str]]:
        words = self._typed.casefold().split()
        return [choice for choice in self._choices if all(word in choice[1].casefold() for word in words)]

    def type(self, text: str) -> None:
        self._typed, self._at = self._typed + text, 0

    def erase(self) -> None:
        self._typed, self._at = self._typed[:-1], 0

    def move(self, by: int) -> None:
        self._at = min(max(self._at + by, 0), max(len(self._matching()) - 1, 0))

    def take(self) -> None:
        """Choose the marked entry, if there is one."""
        found = self._matching()
        if found:
            self.close(found[self._at][0])

    def close(self, value: str | None = None) -> None:
        if not self.chosen.done():
            self.chosen.set_result(value)

    def lines(self, rows: int) -> list[tuple[bool, str]]:
        """Return the rows around the marked entry, each with whether it is that entry."""
        found = self._matching()
        room = max(rows - 1, 1)
        first = min(max(self._at - room // 2, 0), max(len(found) - room, 0))
        typed = f" {plain(self._typed)}" if self._typed else ""
        head = (False, f"{self.title}{typed}  ({len(found)} of {len(self._choices)})")
        shown = [
            (first + place == self._at, f"{'❯' if first + place == self._at else ' '} {plain(label)}")
            for place, (_, label) in enumerate(found[first : first + room])
        ]
        return [head, *shown][:rows] if rows > 1 else shown[:1]
