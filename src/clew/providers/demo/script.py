"""The texts of the demo models, read from ``script.toml`` on first use."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files

import msgspec

from clew.convert import convert

__all__ = ["script"]


class _Topic(msgspec.Struct, frozen=True):
    words: str
    text: str

    def fits(self, question: str) -> bool:
        return re.search(self.words, question, re.IGNORECASE) is not None


class _Script(msgspec.Struct, frozen=True):
    """``about`` is the topic of clew itself, which most questions mention: it is only used if no other topic matches.

    ``tale`` is the text of ``demo/long``, ``failures`` are the messages of ``demo/fail`` by status. ``fields`` are the
    arguments of tools in the order of a line, ``synonyms`` the names that an offered tool may have for one.
    """

    hints: str
    welcome: str
    about: _Topic
    topics: tuple[_Topic, ...]
    tale: str
    failures: dict[str, str]
    fields: dict[str, tuple[str, ...]]
    synonyms: dict[str, tuple[str, ...]]


@cache
def script() -> _Script:
    return convert(tomllib.loads(files(__package__).joinpath("script.toml").read_text("utf-8")), _Script)
