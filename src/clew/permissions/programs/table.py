"""How a program reads its arguments, as data: which options are harmless, which are not, and which take a value.

A table lists what is known. What it does not list is not harmless: it is asked about (PM-8). Options are written
with what follows them: ``-n=`` takes a value, ``--color?`` may have one attached, ``-v`` has none.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from clew.permissions.tokens import names

__all__ = ["ANY", "NEAR", "TESTS", "Option", "Program", "program"]

ANY: Final = re.compile("")
# A path below the folder in which the line runs, and not in git's own: what is written there is the workspace's.
_BELOW: Final = r"(?!-|/|~|.*(?:^|/)\.\.(?:/|$)|(?i:.*(?:^|/)\.git(?:/|$)))"
NEAR: Final = re.compile(rf"-|{_BELOW}[^:\0]+")
# The same with a place inside it; a leading `@` would name a list of further arguments.
TESTS: Final = re.compile(rf"(?!@){_BELOW}[^\0]+")

_DOES: Final = {
    "runs": "run another program or code",
    "writes": "write or change files",
    "loads": "take code or settings from elsewhere",
    "sends": "read or send away files, or connect elsewhere",
}

Value = Literal["none", "attached", "needed"]
_VALUES: Final[Mapping[str, Value]] = {"=": "needed", "?": "attached"}


class Option(msgspec.Struct, frozen=True):
    """One option. ``danger`` says what it makes its program do; ``plain`` is what a harmless value looks like."""

    value: Value = "none"
    danger: str = ""
    plain: re.Pattern[str] | None = None


class Program(msgspec.Struct, frozen=True):
    """The arguments of one program, or of one of its subcommands.

    ``operand`` is what a harmless operand looks like, its beginning where ``open_end``; ``first`` the same for the
    first one. ``stops`` says that options end at the first operand, ``shortens`` that long options may be
    abbreviated, ``bundles`` that letters may be, ``numbers`` that ``-20`` is an option. ``single`` is the style in
    which ``-name`` and ``--name`` are one. More than ``most`` operands do ``danger``, and a rule must write out the
    first of them, or the subcommand alone if that is ``enough``; a subcommand that is dangerous by itself has no
    ``most``; with ``whole`` all of it must be written out. ``passes`` says what becomes of
    what stands behind ``--`` and goes to a program of its own: it is asked about, or free. ``delegates`` names
    programs with tables that may be run through it, as an operand or behind ``module_option``; behind ``actions``
    stand commands. ``script`` is the language of a small program among the arguments. With fewer than ``fed`` operands
    it does what its input says, but for the options ``quiet``.
    """

    options: Mapping[str, Option] = {}
    commands: Mapping[str, Program] | None = None
    operand: re.Pattern[str] = ANY
    first: re.Pattern[str] | None = None
    open_end: bool = True
    operand_danger: str = ""
    danger: str = ""
    whole: bool = False
    most: int | None = None
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


def program(
    plain: str = "",
    *,
    runs: str = "",
    writes: str = "",
    loads: str = "",
    sends: str = "",
    values: Mapping[str, re.Pattern[str]] | None = None,
    value_danger: str = "runs",
    base: Program | None = None,
    danger: str = "",
    operand_danger: str = "runs",
    commands: Mapping[str, Program] | None = None,
    operand: re.Pattern[str] = ANY,
    first: re.Pattern[str] | None = None,
    open_end: bool = True,
    whole: bool = False,
    most: int | None = None,
    enough: bool = False,
    stops: bool = False,
    shortens: bool = True,
    bundles: bool = True,
    numbers: bool = False,
    negates: bool = False,
    single: bool = False,
    passes: Literal["", "asked", "free"] = "",
    script: str = "",
    module_option: str = "",
    delegates: str = "",
    actions: str = "",
    fed: int = 0,
    quiet: str = "",
) -> Program:
    """A table. ``base`` lends its options, as a program does to its subcommands."""
    options = dict(base.options) if base else {}
    for kind, text in (("", plain), ("runs", runs), ("writes", writes), ("loads", loads), ("sends", sends)):
        for word in text.split():
            name = word.rstrip("=?")
            options[name] = Option(_VALUES.get(word[len(name) :], "none"), _DOES.get(kind, ""))
    for name, pattern in (values or {}).items():
        options[name] = Option(options[name].value, options[name].danger or _DOES[value_danger], pattern)
    return Program(
        options, commands, operand, first, open_end, _DOES[operand_danger], _DOES.get(danger, danger), whole, most,
        enough, stops, shortens, bundles, numbers, negates, single, passes, script, module_option, names(delegates),
        names(actions), fed, names(quiet),
    )  # fmt: skip
