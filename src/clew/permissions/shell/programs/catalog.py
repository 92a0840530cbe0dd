"""All programs whose arguments are known, by name; the only reader of the tables next to this module.

A table lists known arguments; all others ask (PM-8). The spelling of an option shows its value: ``-n=`` needs one,
``--color?`` may have one attached, ``-v`` has none. A key may be several names. ``base`` names tables of ``bases``
whose options and settings are inherited; ``each`` is inherited by every subcommand; patterns are named, and defined in
``patterns``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal

import msgspec

__all__ = ["Option", "Program", "Wrapper", "find_program", "is_place", "load_programs", "load_wrappers"]

_DANGERS: Final = {
    "runs": "run another program or code",
    "writes": "write or change files",
    "loads": "take code or settings from elsewhere",
    "sends": "read or send away files, or connect elsewhere",
    "sets": "change the settings by which it later runs programs",
}
_OPTION_KEYS: Final = ("base", "harmless", *_DANGERS, "values", "value_danger")
_VERSION: Final = re.compile(r"-?[0-9][0-9.]*$")


class Option(msgspec.Struct, frozen=True):
    """One option. ``danger`` describes what it makes its program do; ``plain`` matches harmless values."""

    value: Literal["none", "attached", "needed"] = "none"
    danger: str = ""
    plain: re.Pattern[str] | None = None


class Program(msgspec.Struct, frozen=True):
    """The arguments of one program, or of one of its subcommands.

    ``operand`` matches a harmless operand (its beginning with ``open_end``), ``first`` the first one. ``stops``:
    options end at the first operand. ``shortens``: long options may be abbreviated. ``bundles``: letters may be
    bundled. ``numbers``: ``-20`` is an option. ``single``: ``-name`` and ``--name`` are the same. More than
    ``max_operands`` operands do ``danger``, and a rule must contain the first of them, or only the subcommand with
    ``enough``; a subcommand that is dangerous by itself has no ``max_operands``; with ``whole`` a rule must contain all
    of it. ``passes``: arguments after ``--`` go to another program; they ask, or are free. ``delegates`` are programs
    with tables that may be run through it, as an operand or after ``module_option``; ``actions`` are followed by
    commands. ``script`` is the language of a script among the arguments. With fewer than ``fed`` operands it does what
    its input says, except with the options ``quiet``.
    """

    options: Mapping[str, Option] = {}
    commands: Mapping[str, Program] | None = None
    operand: re.Pattern[str] | None = None
    first: re.Pattern[str] | None = None
    open_end: bool = True
    operand_danger: str = _DANGERS["runs"]
    danger: str = ""
    whole: bool = False
    max_operands: int | None = None
    enough: bool = False
    stops: bool = False
    shortens: bool = True
    bundles: bool = True
    numbers: bool = False
    negates: bool = False
    single: bool = False
    passes: Literal["", "asked", "free"] = ""
    script: str = ""
    module_option: str = ""
    delegates: frozenset[str] = frozenset()
    actions: frozenset[str] = frozenset()
    fed: int = 0
    quiet: frozenset[str] = frozenset()


class Wrapper(msgspec.Struct, frozen=True):
    """The options before an inner command: those without and with a value, and the number of operands after them.

    ``assigns``: variables may follow. ``numbers``: ``-20`` is an option. With one of ``quiet``, which have no value,
    nothing is run.
    """

    alone: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    quiet: frozenset[str] = frozenset()
    operands: int = 0
    assigns: bool = False
    numbers: bool = False


def find_program(name: str) -> tuple[str, Program] | None:
    """Return the table for a program of this name, in any letter case, with or without a version suffix."""
    name = name.lower()
    programs = load_programs()
    return programs.get(name) or programs.get(_VERSION.sub("", name))


def is_place(pattern: re.Pattern[str]) -> bool:
    """Return whether a value that matches the pattern is harmless only as a path in the workspace."""
    return pattern.pattern in _place_patterns()


@cache
def _place_patterns() -> frozenset[str]:
    return frozenset(_read_tables()["patterns"][name] for name in ("near", "near-tests"))


@cache
def _read_tables() -> dict[str, dict[str, Any]]:
    """Return the merged tables of all files. They are read for the first shell line, not when clew is imported."""
    sections: dict[str, dict[str, Any]] = {}
    for file in files(__package__).iterdir():
        if file.name.endswith(".toml"):
            for section, tables in tomllib.loads(file.read_text("utf-8")).items():
                sections.setdefault(section, {}).update(tables)
    return sections


@cache
def load_programs() -> Mapping[str, tuple[str, Program]]:
    """Return the tables by every name of a program, each with its main name."""
    programs: dict[str, tuple[str, Program]] = {}
    for name, row in _rows(_read_tables()["programs"]):
        row = dict(row)
        also = row.pop("also", "").split()
        programs |= dict.fromkeys((name, *also), (name, _program(row, {})))
    return programs


@cache
def load_wrappers() -> Mapping[str, Wrapper]:
    """Return the programs that run another command, by name."""
    wrappers = {}
    for name, row in _rows(_read_tables()["wrappers"]):
        words = {key: frozenset(row.get(key, "").split()) for key in ("alone", "valued", "quiet")}
        wrappers[name] = Wrapper(**{**row, **words, "alone": words["alone"] | words["quiet"]})
    return wrappers


def _rows(tables: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return ((name, row) for names, row in tables.items() for name in names.split())


def _program(row: Mapping[str, Any], each: Mapping[str, Any]) -> Program:
    options, settings = _inherit({**each, **row})
    each = settings.pop("each", each)
    patterns = _read_tables()["patterns"]
    for key, value in settings.items():
        match key:
            case "commands":
                settings[key] = {name: _program(inner, each) for name, inner in _rows(value)}
            case "operand" | "first":
                settings[key] = re.compile(patterns[value])
            case "operand_danger" | "danger":
                settings[key] = _DANGERS[value]
            case "delegates" | "actions" | "quiet":
                settings[key] = frozenset(value.split())
    return Program(options, **settings)


def _inherit(row: Mapping[str, Any]) -> tuple[dict[str, Option], dict[str, Any]]:
    """Return the options and settings of a table; its own override those of its bases."""
    options: dict[str, Option] = {}
    settings: dict[str, Any] = {}
    for name in row.get("base", "").split():
        lent, more = _inherit(_read_tables()["bases"][name])
        options |= lent
        settings |= more
    for kind in ("harmless", *_DANGERS):
        for word in row.get(kind, "").split():
            value: Literal["none", "attached", "needed"]
            value = "needed" if word.endswith("=") else "attached" if word.endswith("?") else "none"
            options[word.rstrip("=?")] = Option(value, _DANGERS.get(kind, ""))
    for pattern, words in row.get("values", {}).items():
        plain = re.compile(_read_tables()["patterns"][pattern])
        for name in words.split():
            option = options[name]
            danger = option.danger or _DANGERS[row.get("value_danger", "runs")]
            options[name] = Option(option.value, danger, plain)
    settings |= {key: value for key, value in row.items() if key not in _OPTION_KEYS}
    return options, settings
