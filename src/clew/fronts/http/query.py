"""Query parameters: each read as what it stands for, or refused by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from starlette.requests import Request

from clew.errors import InvalidInput

__all__ = ["choice", "flag", "number", "text"]

_NUMBER = re.compile(r"-?[0-9]{1,15}", re.ASCII)


def text(request: Request, name: str) -> str | None:
    """The parameter as it was sent; an empty one counts as not sent."""
    return request.query_params.get(name) or None


def number(request: Request, name: str) -> int | None:
    value = text(request, name)
    if value is not None and not _NUMBER.fullmatch(value):
        raise InvalidInput(f"{name} must be a number")
    return None if value is None else int(value)


def flag(request: Request, name: str) -> bool:
    value = text(request, name)
    if value not in (None, "true", "false", "1", "0"):
        raise InvalidInput(f"{name} must be true or false")
    return value in ("true", "1")


def choice(request: Request, name: str, choices: Sequence[str], default: str) -> str:
    value = text(request, name) or default
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(choices)}")
    return value
