"""Type hints in JSON: the schema for a model, and conversion of a model's values to the hint's type.

msgspec supports the standard library's types, dataclasses, ``TypedDict`` and its own structs. A hint that contains a
type of pydantic, or one of its ``Field`` in an ``Annotated``, is handled by pydantic, which is only then imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol, get_args

import msgspec

from clew.convert import convert, explain_type_error
from clew.tools.base import File

__all__ = ["Reader", "ValueMismatch", "inline", "reader_of", "schema_and_reader", "to_plain"]

_EXACT: Final = 2.0**53


class ValueMismatch(ValueError):
    """A value does not fit the hint."""


class Reader(Protocol):
    """The reader for one hint."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """Return the JSON Schema with references resolved; recursive types are below ``$defs``."""
        ...

    def read(self, value: Any) -> Any:
        """Convert a JSON value to the hint's type. Raises :class:`ValueMismatch`."""
        ...


def reader_of(hint: Any) -> Reader:
    """Return the reader for a hint. Raises ``TypeError`` for a hint that JSON cannot represent."""
    if "pydantic" in sys.modules and any(_is_pydantic(one) for one in _within(hint)):
        return _PydanticReader(hint)
    return _MsgspecReader(hint)


def schema_and_reader(output: Any) -> tuple[Mapping[str, Any] | None, Callable[[Any], Any] | None]:
    """Return the schema for a structured output, and the converter for it; for a JSON Schema there is none."""
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
            return convert(_integers(value), self._hint)
        except msgspec.ValidationError as error:
            raise ValueMismatch(explain_type_error(error, self._hint)) from error
        except RecursionError as error:
            raise ValueMismatch(str(error)) from error


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
            raise ValueMismatch(
                "; ".join(f"{where}: {what}" if where else what for where, what in found[:5])
            ) from error


def to_plain(value: Any, files: list[File] | None = None) -> Any:
    """Convert a value of any of these types to plain JSON values: bytes to base64, a file to its name. Files are
    appended to ``files``. Raises ``TypeError`` or ``ValueError``."""

    def dump(inner: Any) -> Any:
        if isinstance(inner, File):
            if files is not None:
                files.append(inner)
            return inner.mark
        model_dump = getattr(inner, "model_dump", None)
        if model_dump is None:
            raise TypeError(f"a {type(inner).__name__} cannot be encoded as JSON")
        return model_dump(mode="json")

    return msgspec.to_builtins(value, str_keys=True, enc_hook=dump)


def _within(hint: Any) -> Iterator[Any]:
    """Yield the hint and all its parts, including the metadata of an ``Annotated``."""
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
    """Replace references by their schemas, because models follow them badly; only recursive types keep theirs."""
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
    # Siblings of a reference, such as a description of this use, are preserved.
    siblings = {key: value for key, value in node.items() if key != "$ref"}
    if name not in within:
        found = _inlined(components[name], components, (*within, name), recursive)
        return {**found, **siblings} if siblings else found
    if name not in recursive:
        recursive[name] = None  # A placeholder, so that the type is not entered again.
        recursive[name] = _inlined(components[name], components, (name,), recursive)
    return node


def _integers(value: Any) -> Any:
    """Convert floats such as 1.0 to integers: JSON Schema allows them, some providers send them, msgspec refuses
    them."""
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT:
        return int(value)
    if isinstance(value, dict):
        return {key: _integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_integers(item) for item in value]
    return value
