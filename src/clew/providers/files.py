"""Which files a model takes beside text: what its wire carries, less what the model is known not to take; and how it
counts them."""

from __future__ import annotations

import tomllib
from fnmatch import fnmatchcase
from functools import cache
from importlib.resources import files

import msgspec

from clew.convert import fit
from clew.providers.base import EndpointKind
from clew.transcript.file_rule import UNKNOWN, FileRule

__all__ = ["file_rule", "files_taken"]


class _Less(msgspec.Struct, frozen=True):
    models: tuple[str, ...]
    without: tuple[str, ...]


class _Counted(FileRule, frozen=True, kw_only=True):
    models: tuple[str, ...]


class _Files(msgspec.Struct, frozen=True):
    """``files.toml``."""

    wires: dict[EndpointKind, tuple[str, ...]]
    less: tuple[_Less, ...]
    counted: tuple[_Counted, ...]


@cache
def _files() -> _Files:
    return fit(tomllib.loads(files(__package__).joinpath("files.toml").read_text("utf-8")), _Files)


def files_taken(kind: EndpointKind, model_id: str) -> tuple[str, ...]:
    """The media types a model takes at an endpoint of this kind."""
    less = [one.without for one in _files().less if _is_of(model_id, one.models)]
    left_out = [pattern for without in less for pattern in without]
    carried = _files().wires.get(kind) or _files().wires["openai-compatible"]
    return tuple(one for one in carried if not any(fnmatchcase(one, pattern) for pattern in left_out))


def file_rule(model_id: str) -> FileRule:
    """How the provider of a model counts pictures and documents, by the first entry that names it."""
    found = next((one for one in _files().counted if _is_of(model_id, one.models)), UNKNOWN)
    return FileRule(found.image, found.page)


def _is_of(model_id: str, patterns: tuple[str, ...]) -> bool:
    # A gateway's name for a model begins with its maker's.
    name = model_id.rpartition("/")[2].lower()
    return any(fnmatchcase(name, pattern) for pattern in patterns)
