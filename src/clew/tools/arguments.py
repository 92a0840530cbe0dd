"""Validation of a model's arguments against a tool's schema: None, or a sentence the model can act on.

Schemas are JSON Schema 2020-12 and may be untrusted (an MCP server), so references are never fetched, and patterns
cannot run for long, because the library's regex engine has a step limit.

The steps of a validation are counted before. A short schema can need more steps than there is time for: one that refers
to the same schema twice, forty levels deep, is visited 2^40 times while the whole process is blocked. The cost is one
step per position in the schema and level of the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

__all__ = ["check_arguments", "check_schema", "check_value"]

_MAX_ERRORS: Final = 5
_MAX_CHARS: Final = 200
_KINDS: Final = {str: "text", list: "an array", int: "a number", float: "a number", bool: "a boolean"}
_MAX_STEPS: Final = 20_000_000
"""The limit for one validation; reaching it takes some seconds at worst."""
_MAX_POSITIONS: Final = 100_000
_BACKTRACKING_STEPS: Final = 10_000
"""Steps counted for a pattern that backtracks; any other counts once."""
_SAME_LEVEL: Final = ("allOf", "anyOf", "oneOf", "dependentSchemas", "dependencies", "not", "if", "then", "else")
_EACH_PROPERTY: Final = ("patternProperties", "additionalProperties", "unevaluatedProperties", "propertyNames")
_EACH_ITEM: Final = ("items", "contains", "unevaluatedItems")
_BY_NAME: Final = ("properties", "patternProperties", "dependentSchemas", "dependencies")


def check_arguments(schema: Mapping[str, Any], args: object) -> str | None:
    """Return None if ``args`` fit, else what is wrong and where."""
    if not isinstance(args, dict):
        found = "nothing" if args is None else _KINDS.get(type(args), "something else")
        return f"the arguments must be a JSON object, but {found} was sent"
    # Not the model's fault, but the model has to continue without the tool.
    if problem := check_schema(schema):
        return f"the tool cannot be called: {problem}"
    problem = check_value(schema, args)
    return None if problem is None else f"the arguments {problem}"


def check_schema(schema: Mapping[str, Any]) -> str | None:
    """Return None for a usable schema, else what is wrong with it."""
    try:
        encoded = msgspec.json.encode(dict(schema), order="deterministic")
        _validator(encoded)
        if _steps_of(encoded, 0) > _MAX_STEPS:
            raise ValueError("validating a value against it would take too long")
    except Exception as error:
        return f"its schema is not valid: {_short(str(error).partition(chr(10))[0])}"
    return None


def check_value(schema: Mapping[str, Any], value: object) -> str | None:
    """Return None if the value fits a valid schema, else what is wrong and where."""
    encoded = msgspec.json.encode(dict(schema), order="deterministic")
    validator = _validator(encoded)
    depth, count = _measure(value)
    try:
        if _steps_of(encoded, depth) * count > _MAX_STEPS:
            raise ValueError("it would take too long")
    except ValueError as error:
        return f"cannot be checked against the schema: {error}"
    try:
        found_errors = [
            f"{_where(error.instance_path)} {_short(error.message)}"
            for error in islice(validator.iter_errors(value), _MAX_ERRORS + 1)
        ]
    except (ValueError, RecursionError) as error:  # UnicodeEncodeError is a ValueError.
        return f"are not valid JSON: {_short(str(error))}"
    if not found_errors:
        return None
    more = "; and more" if len(found_errors) > _MAX_ERRORS else ""
    return f"do not fit: {'; '.join(found_errors[:_MAX_ERRORS])}{more}"


@lru_cache(maxsize=1024)
def _steps_of(schema: bytes, depth: int) -> int:
    return _count_steps(msgspec.json.decode(schema), depth)


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Draft202012Validator:
    # Imported for the first check: importing clew stays fast.
    from jsonschema_rs import Draft202012Validator

    # Values are masked because a message would quote them whole, and a file's content can be an argument.
    return Draft202012Validator(msgspec.json.decode(schema), mask="the value", offline=True)


def _measure(value: object) -> tuple[int, int]:
    """Return the depth of a value, and how many values it contains."""
    level, depth, count = [value], -1, 0
    while level:
        count += len(level)
        inner: list[object] = []
        for item in level:
            inner += item.values() if isinstance(item, dict) else item if isinstance(item, list | tuple) else ()
        level, depth = inner, depth + 1
    return depth, count


def _count_steps(schema: Mapping[str, Any], depth: int) -> int:
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


def _where(path: list[str | int]) -> str:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    return f"at {_short(steps)}:" if steps else "at the top:"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…"
