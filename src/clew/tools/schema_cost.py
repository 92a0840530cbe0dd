"""How much work it is to hold a value against a schema, found out before it is done.

A short schema of a stranger can mean more steps than there is time for: one that refers to the same thing twice, forty
times over, is walked 2^40 times, with the whole process standing still. So the steps are counted first, at most as many
as there are places in the schema for each level of the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

__all__ = ["MOST", "effort", "measure"]

MOST: Final = 20_000_000
"""Steps that are taken, some seconds of them at worst."""
_MAX_PLACES: Final = 100_000
_MATCHED: Final = 10_000
"""For a pattern that goes back and forth; any other is read once."""
_HERE: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies", "not", "if", "then", "else")
_OF_OBJECTS: Final = ("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")
_OF_ARRAYS: Final = ("items", "contains", "unevaluatedItems")
_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")


def measure(value: object) -> tuple[int, int]:
    """How many levels a value has below itself, and how many values it is."""
    level, depth, count = [value], -1, 0
    while level:
        count += len(level)
        inner: list[object] = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list | tuple) else ()
        level, depth = inner, depth + 1
    return depth, count


def effort(schema: Mapping[str, Any], depth: int) -> int:
    """The steps for one value of this depth, at worst. Raises ``ValueError`` where they cannot be counted."""
    try:
        return _Steps(schema).count(schema, depth)
    except RecursionError:
        raise ValueError("it goes too deep to be followed") from None


class _Steps:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._counted: dict[tuple[int, int], int] = {}
        self._under_way: set[tuple[int, int]] = set()

    def count(self, schema: Any, depth: int) -> int:
        if not isinstance(schema, Mapping):
            return 1
        place = (id(schema), depth)
        if place in self._under_way:
            raise ValueError("it refers to itself without an end")
        if place not in self._counted:
            if len(self._counted) > _MAX_PLACES:
                raise ValueError("it has too many places to be followed")
            self._under_way.add(place)
            self._counted[place] = self._count(schema, depth)
            self._under_way.discard(place)
        return self._counted[place]

    def _count(self, schema: Mapping[str, Any], depth: int) -> int:
        if isinstance(schema.get("$id"), str) and schema is not self._root:
            # What it refers to begins at itself.
            outer, self._root = self._root, schema
            try:
                return self._count(schema, depth)
            finally:
                self._root = outer
        patterns = [schema.get("pattern", ""), *(schema.get("patternProperties") or {})]
        steps = 1 + len(schema.get("enum") or ()) + sum(_MATCHED for one in patterns if _goes_back(str(one)))
        steps += sum(self.count(one, depth) for key in _HERE for one in _parts(schema, key))
        for key in ("$ref", "$dynamicRef"):
            if isinstance(schema.get(key), str):
                steps += self.count(self._find(schema[key]), depth)
        if depth > 0:
            # What is meant for one name or place alone is walked for that one; everything else for each.
            inner = [
                max((self.count(one, depth - 1) for one in _parts(schema, of_one)), default=0)
                + sum(self.count(one, depth - 1) for key in of_each for one in _parts(schema, key))
                for of_one, of_each in (("properties", _OF_OBJECTS), ("prefixItems", _OF_ARRAYS))
            ]
            steps += max(inner)
        # To know what is left over, everything beside it is looked at once more.
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
    """The schemas of a keyword: one, a list of them, or by name."""
    value = schema.get(key)
    if isinstance(value, list):
        yield from value
    elif isinstance(value, Mapping) and key in _BY_NAME:
        yield from value.values()
    elif value is not None:
        yield value


def _goes_back(pattern: str) -> bool:
    return "(?" in pattern or any(f"\\{one}" in pattern for one in "123456789kK")
