"""The cost of validating a value against a schema, computed before validating.

A short untrusted schema can need more steps than there is time for: one that refers to the same schema twice, forty
levels deep, is visited 2^40 times while the whole process is blocked. So the steps are counted first, at a cost of one
per position in the schema and level of the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

__all__ = ["MAX_STEPS", "count_steps", "measure"]

MAX_STEPS: Final = 20_000_000
"""The most steps for one validation; at worst it takes some seconds."""
_MAX_POSITIONS: Final = 100_000
_BACKTRACKING_STEPS: Final = 10_000
"""Steps counted for a pattern that backtracks; any other counts once."""
_SAME_LEVEL: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies", "not", "if", "then", "else")
_EACH_PROPERTY: Final = ("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")
_EACH_ITEM: Final = ("items", "contains", "unevaluatedItems")
_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")


def measure(value: object) -> tuple[int, int]:
    """Return the depth of a value, and how many values it contains."""
    level, depth, count = [value], -1, 0
    while level:
        count += len(level)
        inner: list[object] = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        level, depth = inner, depth + 1
    return depth, count


def count_steps(schema: Mapping[str, Any], depth: int) -> int:
    """Return the steps for one value of this depth, at worst. Raises ``ValueError`` if they cannot be counted."""
    try:
        return _Steps(schema).count(schema, depth)
    except RecursionError:
        raise ValueError("it goes too deep to be followed") from None


class _Steps:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._counted: dict[tuple[int, int], int] = {}
        self._open: set[tuple[int, int]] = set()

    def count(self, schema: Any, depth: int) -> int:
        if not isinstance(schema, Mapping):
            return 1
        position = (id(schema), depth)
        if position in self._open:
            raise ValueError("it refers to itself without an end")
        if position not in self._counted:
            if len(self._counted) > _MAX_POSITIONS:
                raise ValueError("it has too many places to be followed")
            self._open.add(position)
            self._counted[position] = self._count(schema, depth)
            self._open.discard(position)
        return self._counted[position]

    def _count(self, schema: Mapping[str, Any], depth: int) -> int:
        if isinstance(schema.get("$id"), str) and schema is not self._root:
            # A schema with its own $id resolves references relative to itself.
            outer, self._root = self._root, schema
            try:
                return self._count(schema, depth)
            finally:
                self._root = outer
        patterns = [schema.get("pattern", ""), *(schema.get("patternProperties") or {})]
        steps = (
            1 + len(schema.get("enum") or ()) + sum(_BACKTRACKING_STEPS for one in patterns if _backtracks(str(one)))
        )
        steps += sum(self.count(one, depth) for key in _SAME_LEVEL for one in _parts(schema, key))
        for key in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(key), str):
                steps += self.count(self._find(schema[key]), depth)
        if depth > 0:
            # Keywords for one name or position are visited once; the others once per element.
            inner = [
                max((self.count(one, depth - 1) for one in _parts(schema, of_one)), default=0)
                + sum(self.count(one, depth - 1) for key in of_each for one in _parts(schema, key))
                for of_one, of_each in (("properties", _EACH_PROPERTY), ("prefixItems", _EACH_ITEM))
            ]
            steps += max(inner)
        # To find unevaluated values, all sibling keywords are evaluated once more.
        return steps * 2 if "unevaluatedProperties" in schema or "unevaluatedItems" in schema else steps

    def _find(self, reference: str) -> Any:
        if reference == "#" or reference == self._root.get("$id"):
            return self._root
        if not reference.startswith("#/"):
            raise ValueError(f"it refers to {reference!r}; only what begins with #/ is followed")
        found: Any = self._root
        for step in unquote(reference[2:]).split("/"):
            if id(found) != id(self._root) and isinstance(found, dict) and "$id" in found:
                raise ValueError(f"it refers to {reference!r}, inside of a part with an $id of its own")
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(step) if isinstance(found, list) else step]
            except (KeyError, IndexError, TypeError, ValueError):
                raise ValueError(f"it refers to {reference!r}, which is not there") from None
        return found


def _parts(schema: Mapping[str, Any], key: str) -> Iterator[Any]:
    """Yield the schemas of a keyword: one, a list of them, or by name."""
    value = schema.get(key)
    if isinstance(value, list):
        yield from value
    elif isinstance(value, Mapping) and key in _BY_NAME:
        yield from value.values()
    elif value is not None:
        yield value


def _backtracks(pattern: str) -> bool:
    return "(?" in pattern or any(f"\\{one}" in pattern for one in "123456789kK")
