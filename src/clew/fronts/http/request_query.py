"""Query parameters: declared as a struct, each read as what it stands for, or refused by name."""

from __future__ import annotations

import functools
import re
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import inspect
from starlette.requests import Request

from clew.errors import InvalidInput
from clew.transcript.gate import check_value

__all__ = ["read_query"]

_NUMBER: Final = re.compile(r"-?[0-9]{1,15}", re.ASCII)
_FLAGS: Final = {"true": True, "1": True, "false": False, "0": False}
_Kind = Literal["number", "flag", "text"]
T = TypeVar("T", bound=msgspec.Struct)


def read_query(request: Request, type_: type[T]) -> T:
    """The query as ``type_``. What is not in it is ignored, an empty parameter counts as not sent."""
    values: dict[str, Any] = {}
    for name, kind in _kinds(type_).items():
        text = request.query_params.get(name)
        if text:
            values[name] = _value(name, text, kind)
    check_value(values, "the query")
    try:
        return msgspec.convert(values, type_)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"the query does not fit: {error}") from error


def _value(name: str, text: str, kind: _Kind) -> Any:
    if kind == "number":
        if not _NUMBER.fullmatch(text):
            raise InvalidInput(f"{name} must be a number")
        return int(text)
    if kind == "flag":
        if text not in _FLAGS:
            raise InvalidInput(f"{name} must be true or false")
        return _FLAGS[text]
    return text


@functools.cache
def _kinds(type_: type[msgspec.Struct]) -> dict[str, _Kind]:
    return {field.encode_name: _kind(inspect.type_info(field.type)) for field in msgspec.structs.fields(type_)}


def _kind(info: inspect.Type) -> _Kind:
    kinds = {type(one) for one in (info.types if isinstance(info, inspect.UnionType) else (info,))}
    if inspect.IntType in kinds:
        return "number"
    return "flag" if inspect.BoolType in kinds else "text"
