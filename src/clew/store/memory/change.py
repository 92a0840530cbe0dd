"""A change: what a unit did to tables, with the way back: a unit that fails half-way leaves nothing behind."""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

__all__ = ["ABSENT", "Change", "Changed"]

K = TypeVar("K")
V = TypeVar("V")

ABSENT: Final = object()
"""What a table holds under a key that it does not have."""


class Changed(NamedTuple):
    """One entry of a table before and after; :data:`ABSENT` where there is none."""

    table: dict[Any, Any]
    key: Any
    before: Any
    after: Any


class Change:
    """The writes of one unit, each with the way back, and the way there again."""

    def __init__(self) -> None:
        self.done: list[Changed] = []

    def put(self, table: dict[K, V], key: K, value: V) -> None:
        self.done.append(Changed(table, key, table.get(key, ABSENT), value))
        table[key] = value

    def drop(self, table: dict[K, V], key: K) -> None:
        if key in table:
            self.done.append(Changed(table, key, table.pop(key), ABSENT))

    def undo(self) -> None:
        for table, key, before, _ in reversed(self.done):
            _set(table, key, before)

    def redo(self) -> None:
        """Carry out again what was undone."""
        for table, key, _, after in self.done:
            _set(table, key, after)

    def of(self, tables: dict[str, dict[Any, Any]]) -> dict[tuple[str, Any], tuple[Any, Any]]:
        """Return the changes to these tables: by table and key the entry before and after."""
        names = {id(table): name for name, table in tables.items()}
        found: dict[tuple[str, Any], tuple[Any, Any]] = {}
        for table, key, before, after in self.done:
            name = names.get(id(table))
            if name is not None:
                found[name, key] = (found.get((name, key), (before, ABSENT))[0], after)
        return found


def _set(table: dict[Any, Any], key: Any, value: Any) -> None:
    if value is ABSENT:
        table.pop(key, None)
    else:
        table[key] = value
