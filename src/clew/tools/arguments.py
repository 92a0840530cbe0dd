"""Validation of a model's arguments against a tool's schema: None, or a sentence the model can act on.

Schemas are JSON Schema 2020-12 and may be untrusted (an MCP server), so references are never fetched, and patterns
cannot run for long: the library's regex engine has a step limit, and the steps of a schema are counted before
(``schema_cost.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import msgspec

from clew.tools.schema_cost import MAX_STEPS, count_steps, measure

if TYPE_CHECKING:
    from jsonschema_rs import Draft202012Validator

__all__ = ["check_arguments", "check_schema", "check_value"]

_MAX_ERRORS: Final = 5
_MAX_CHARS: Final = 200
_KINDS: Final = {str: "text", list: "an array", int: "a number", float: "a number", bool: "a boolean"}


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
        if _count_steps(encoded, 0) > MAX_STEPS:
            raise ValueError("it would take too long to hold a value against it")
    except Exception as error:
        return f"its schema is not valid: {_short(str(error).partition(chr(10))[0])}"
    return None


def check_value(schema: Mapping[str, Any], value: object) -> str | None:
    """Return None if the value fits a valid schema, else what is wrong and where."""
    encoded = msgspec.json.encode(dict(schema), order="deterministic")
    validator = _validator(encoded)
    depth, count = measure(value)
    try:
        if _count_steps(encoded, depth) * count > MAX_STEPS:
            raise ValueError("it would take too long")
    except ValueError as error:
        return f"cannot be held against the schema: {error}"
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
def _count_steps(schema: bytes, depth: int) -> int:
    return count_steps(msgspec.json.decode(schema), depth)


@lru_cache(maxsize=512)
def _validator(schema: bytes) -> Draft202012Validator:
    # Imported for the first check: importing clew stays fast.
    from jsonschema_rs import Draft202012Validator

    # Values are masked because a message would quote them whole, and a file's content can be an argument.
    return Draft202012Validator(msgspec.json.decode(schema), mask="the value", offline=True)


def _where(path: list[str | int]) -> str:
    steps = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).removeprefix(".")
    return f"at {_short(steps)}:" if steps else "at the top:"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "…"
