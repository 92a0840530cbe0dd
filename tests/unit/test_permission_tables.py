"""The tables of programs are data: their form is checked here, and nothing in them names what is not there (PM-8)."""

from __future__ import annotations

import re
import tomllib
from importlib.resources import files
from typing import Any, Literal

import msgspec
import pytest

from clew.permissions.shell.programs.catalog import load_programs, load_wrappers

Danger = Literal["runs", "writes", "loads", "sends", "sets"]
OPTION = re.compile(r"-[^\s=?]*[=?]?|-\?")


class Row(msgspec.Struct, forbid_unknown_fields=True):
    """A table of a program, of one of its subcommands, or of what both lend to others."""

    also: str = ""
    base: str = ""
    each: Row | None = None
    harmless: str = ""
    runs: str = ""
    writes: str = ""
    loads: str = ""
    sends: str = ""
    sets: str = ""
    values: dict[str, str] = {}
    value_danger: Danger = "runs"
    first: str = ""
    operand: str = ""
    operand_danger: Danger = "runs"
    open_end: bool = True
    danger: Danger | None = None
    max_operands: int | None = None
    enough: bool = False
    whole: bool = False
    stops: bool = False
    shortens: bool = True
    bundles: bool = True
    numbers: bool = False
    negates: bool = False
    single: bool = False
    passes: Literal["", "asked", "free"] = ""
    script: Literal["", "awk", "sed", "tar"] = ""
    module_option: str = ""
    delegates: str = ""
    actions: str = ""
    fed: int = 0
    quiet: str = ""
    commands: dict[str, Row] = {}

    def every(self) -> list[Row]:
        """The row with all that stand in it."""
        inner = [*self.commands.values(), *([self.each] if self.each else [])]
        return [self, *(row for one in inner for row in one.every())]


class WrapperRow(msgspec.Struct, forbid_unknown_fields=True):
    alone: str = ""
    valued: str = ""
    quiet: str = ""
    operands: int = 0
    assigns: bool = False
    numbers: bool = False


class Tables(msgspec.Struct, forbid_unknown_fields=True):
    """One file."""

    patterns: dict[str, str] = {}
    bases: dict[str, Row] = {}
    programs: dict[str, Row] = {}
    wrappers: dict[str, WrapperRow] = {}


def read_tables() -> list[Tables]:
    found = [file for file in files("clew.permissions.shell.programs").iterdir() if file.name.endswith(".toml")]
    return [msgspec.convert(tomllib.loads(file.read_text("utf-8")), Tables) for file in found]


def joined(section: str) -> dict[str, Any]:
    """A section of all files; a name that stands in two of them would be read by chance."""
    pairs = [(name, row) for tables in read_tables() for name, row in getattr(tables, section).items()]
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


@pytest.mark.rule("PM-8")
def test_every_name_in_the_tables_leads_somewhere_and_every_pattern_is_used() -> None:
    """A misspelled key, base or pattern would make an option harmless or unknown without anybody noticing."""
    patterns, bases = joined("patterns"), joined("bases")
    rows = [row for section in (bases, joined("programs")) for top in section.values() for row in top.every()]
    named = {name for row in rows for name in (row.first, row.operand, *row.values) if name}
    assert named == set(patterns)
    assert {name for row in rows for name in row.base.split()} == set(bases)
    assert {name for row in rows for name in row.delegates.split()} <= set(load_programs())
    for pattern in patterns.values():
        re.compile(pattern)
    for row in rows:
        written = f"{row.harmless} {row.runs} {row.writes} {row.loads} {row.sends} {row.sets}".split()
        assert [word for word in written if not OPTION.fullmatch(word)] == []


@pytest.mark.rule("PM-8")
def test_no_two_tables_are_for_one_name() -> None:
    """The second would silently take the place of the first."""
    programs = joined("programs")
    names = [name for key, row in programs.items() for name in f"{key} {row.also}".split()]
    assert sorted(names) == sorted(load_programs())
    assert sorted(name for key in joined("wrappers") for name in key.split()) == sorted(load_wrappers())
