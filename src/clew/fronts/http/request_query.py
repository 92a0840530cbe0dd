"""Query parameters: declared as a struct, each converted to its type, or refused by name."""

from __future__ import annotations

import functools
import re
from typing import Any, Final, TypeVar

import msgspec
from msgspec import inspect
from starlette.requests import Request

from clew.convert import convert, explain_type_error
from clew.errors import InvalidInput
from clew.transcript.value_check import check_value

__all__ = ["read_query"]

_NUMBER: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
T = TypeVar("T", bound=msgspec.Struct)


def read_query(request: Request, type_: type[T]) -> T:
    """Parse the query as ``type_``. Unknown parameters are ignored; an empty one counts as absent."""
    values: dict[str, Any] = {}
    for name, kinds in _kinds(type_).items():
        text = request.query_params.get(name)
        if not text:
            continue
        values[name] = text
        if inspect.IntType in kinds:
            if not _NUMBER.fullmatch(text):
                raise InvalidInput(f"{name} must be a number")
            values[name] = int(text)
        elif inspect.BoolType in kinds:
            if text not in _FLAGS:
                raise InvalidInput(f"{name} must be true or false")
            values[name] = _FLAGS[text]
    check_value(values, "the query")
    try:
        return convert(values, type_)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"invalid query: {explain_type_error(error, type_)}") from error


@functools.cache
def _kinds(type_: type[msgspec.Struct]) -> dict[str, set[type[inspect.Type]]]:
    """Return the possible types of each parameter, by name."""
    infos = {field.encode_name: inspect.type_info(field.type) for field in msgspec.structs.fields(type_)}
    return {
        name: {type(one) for one in (info.types if isinstance(info, inspect.UnionType) else (info,))}
        for name, info in infos.items()
    }
