"""Type hints as what JSON can carry: the schema a model is told, and a model's value in the hint's own type.

msgspec knows the standard library's types, dataclasses, ``TypedDict`` and its own structs. A hint with a type of
pydantic's in it, or with one of its ``Field`` in an ``Annotated``, is read by pydantic, which is only then imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, get_args

import msgspec

from clew.convert import fit
from clew.tools.base import File
from clew.type_error import explain_type_error

__all__ = ["Misfit", "Reader", "inline", "reader_of", "schema_and_reader", "to_plain"]

_EXACT: Final = 2.0**53


class Misfit(ValueError):
    """A value is not what the hint says."""


class Reader(Protocol):
    """One hint."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """As JSON Schema, references followed; what is within itself stands below ``$defs``."""
        ...

    def read(self, value: Any) -> Any:
        """A JSON value in the hint's type. Raises :class:`Misfit`."""
        ...


def reader_of(hint: Any) -> Reader:
    """Raises ``TypeError`` for a hint that JSON cannot carry."""
    if "pydantic" in sys.modules and any(_is_pydantic(one) for one in _within(hint)):
        return _PydanticReader(hint)
    return _MsgspecReader(hint)


def schema_and_reader(output: Any) -> tuple[Mapping[str, Any] | None, Callable[[Any], Any] | None]:
    """What a turn is asked for, and what makes a value of the answer; nothing does where a JSON Schema was given."""
    if output is None or isinstance(output, Mapping):
        return output, None
    reader = reader_of(output)
    return reader.schema, reader.read


class _MsgspecReader:
    def __init__(self, hint: Any) -> None:
        [schema], components = msgspec.json.schema_components([hint])
        self.schema: Mapping[str, Any] = inline(schema, components)
        self._hint = hint

    def read(self, value: Any) -> Any:
        try:
            return fit(_whole(value), self._hint)
        except msgspec.ValidationError as error:
            raise Misfit(explain_type_error(error, self._hint)) from error
        except RecursionError as error:
            raise Misfit(str(error)) from error


class _PydanticReader:
    def __init__(self, hint: Any) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            self._adapter: Any = TypeAdapter(hint)
            schema = self._adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise TypeError(str(error).partition("\n")[0]) from error
        self.schema: Mapping[str, Any] = inline(schema, schema.pop("$defs", {}))

    def read(self, value: Any) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(msgspec.json.encode(value))
        except ValidationError as error:
            found = [(".".join(map(str, one["loc"])), one["msg"]) for one in error.errors(include_url=False)]
            raise Misfit("; ".join(f"{where}: {what}" if where else what for where, what in found[:5])) from error


def to_plain(value: Any, files: list[File] | None = None) -> Any:
    """A value of any of these types as JSON would hold it; bytes as base64, and a file by its name: those that are met
    are put into ``files``. Raises ``TypeError`` or ``ValueError``."""

    def dump(one: Any) -> Any:
        if isinstance(one, File):
            if files is not None:
                files.append(one)
            return one.mark
        own = getattr(one, "model_dump", None)
        if own is None:
            raise TypeError(f"a {type(one).__name__} has no form in JSON")
        return own(mode="json")

    return msgspec.to_builtins(value, str_keys=True, enc_hook=dump)


def _within(hint: Any) -> Iterator[Any]:
    """The hint and all it is made of, the metadata of an ``Annotated`` included."""
    yield hint
    yield from getattr(hint, "__metadata__", ())
    for part in get_args(hint):
        yield from _within(part)


def _is_pydantic(part: Any) -> bool:
    kind = part if isinstance(part, type) else type(part)
    return hasattr(kind, "__pydantic_core_schema__") or kind.__module__.partition(".")[0] in (
        "pydantic",
        "annotated_types",
    )


def inline(schema: Mapping[str, Any], components: Mapping[str, Any]) -> dict[str, Any]:
    """Models follow references badly, so each is replaced by what it names; only a type within itself keeps one."""
    recursive: dict[str, Any] = {}
    whole: dict[str, Any] = dict(_inlined(schema, components, (), recursive))
    return {**whole, "$defs": recursive} if recursive else whole


def _inlined(node: Any, components: Mapping[str, Any], within: tuple[str, ...], recursive: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(item, components, within, recursive) for item in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if not isinstance(reference, str):
        return {key: _inlined(value, components, within, recursive) for key, value in node.items()}
    name = reference.rpartition("/")[2]
    # What stands beside a reference, such as a description of this one use, goes with it.
    beside = {key: value for key, value in node.items() if key != "$ref"}
    if name not in within:
        found = _inlined(components[name], components, (*within, name), recursive)
        return {**found, **beside} if beside else found
    if name not in recursive:
        recursive[name] = None  # A place holder, so that the type is not entered a second time.
        recursive[name] = _inlined(components[name], components, (name,), recursive)
    return node


def _whole(value: Any) -> Any:
    """1.0 is an integer in JSON Schema, and some providers send all their numbers so; msgspec would refuse it."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return value
