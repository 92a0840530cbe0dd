"""The effects of a program's arguments: every option is read as the program itself reads it (PM-8).

A program with a table has options that run programs, write files or load settings. Each of its arguments must be fully
known: text that only the running shell knows could be one of those options. Options that are not in the table do not
count as harmless. Dangerous arguments are not forbidden, but a rule must contain them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from clew.permissions.shell.programs.catalog import Option, Program, find_program, is_place
from clew.permissions.shell.programs.scripts import is_plain_script
from clew.permissions.shell.tokens import UNKNOWN, Token

__all__ = ["Findings", "examine"]

_GLOB: Final = re.compile(r"[*?\[\0]")
_NUMBER: Final = re.compile(r"-[0-9]+")
# A glob that begins so may find `..`, or a name that begins with anything.
_DOTTED: Final = re.compile(r"(?:^|/)(?:\.(?!/)|\[)|^[*?]")
_OPTION_LIKE: Final = re.compile(r"-[^0-9.]")


class Findings(msgspec.Struct, frozen=True):
    """The result for one command. ``head_words`` is the number of words a rule must contain to cover it: 0 if nothing
    in it is dangerous, None if no rule can. ``places`` are paths that are harmless only in the workspace."""

    head_words: int | None
    why: str
    places: tuple[str, ...] = ()


class _UnknownArgument(Exception):
    """An argument that only the running shell knows; the text says which."""


def examine(words: Sequence[Token]) -> Findings | None:
    """Return the words a rule for the command must contain; None for a program without a table."""
    found = find_program(words[0].value.rpartition("/")[2])
    if found is None:
        return None
    reading = _Reading(words, *found)
    try:
        reading.read()
    except _UnknownArgument as error:
        return Findings(None, str(error))
    return Findings(reading.head_words, reading.why, tuple(reading.places))


def _beginning(word: Token) -> str:
    """Return the known start of a word: all of it, or the text before the first part that only the shell knows."""
    if UNKNOWN not in word.value and not word.glob:
        return word.value
    found = _GLOB.search(word.value)
    if (word.rooted or word.home) and not (found and found.start()):
        return "/"
    return word.value[: found.start()] if found else word.value


def _is_known(word: Token) -> bool:
    return UNKNOWN not in word.value and not word.glob and not word.several


class _Reading:
    """One pass over the arguments. ``at`` is the next word; ``head_words`` counts the words up to the last danger."""

    def __init__(self, words: Sequence[Token], name: str, table: Program) -> None:
        self.words, self.name, self.table = words, name, table
        self.at = 1
        self.head_words = 0
        self.why = ""
        self.operands = 0
        self.first_operand = 0
        self.command_end = 1
        self.has_script = False
        self.scripts: list[str] = []
        self.places: list[str] = []
        self.quiet = False

    def read(self) -> None:
        if self.table.script == "tar" and len(self.words) > 1:
            self._old_bundle()
        ended = False
        while self.at < len(self.words):
            word = self.words[self.at]
            text = word.value
            if not ended and text == "--":
                ended = True
                self.at += 1
                if self.table.passes:
                    self._read_passed_arguments()
                    return
            elif not ended and (begin := self._may_be_option(word)):
                self._option(word, begin)
            elif self._operand(word):
                return
        # Checked at the end, when all operands are counted.
        if self.operands < self.table.fed and not self.quiet:
            raise _UnknownArgument(f"`{self.name}` does what its input says, and can run programs")

    def danger(self, head_words: int, why: str) -> None:
        self.why = self.why or why
        self.head_words = max(self.head_words, min(head_words, len(self.words)))

    # ------------------------------------------------------------ options

    def _may_be_option(self, word: Token) -> str:
        """Return the known start of an option, or nothing for an operand. Raises if it could be either."""
        begin = _beginning(word)
        if word.several or (not begin and not _is_known(word)):
            raise self._unknown_argument(word)
        return begin if begin.startswith("-") and word.value != "-" else ""

    def _require_known(self, word: Token) -> None:
        """Raise for a word that only the shell knows: it may be a harmful argument."""
        if not _is_known(word):
            raise self._unknown_argument(word)

    def _unknown_argument(self, word: Token) -> _UnknownArgument:
        shown = word.value.replace(UNKNOWN, "…")
        return _UnknownArgument(
            f"what `{shown}` will be is known only to the running shell, "
            f"and it could be an option that makes `{self.name}` run a program or write a file"
        )

    def _option(self, word: Token, begin: str) -> None:
        table, text = self.table, word.value
        self.at += 1
        if _NUMBER.fullmatch(text) and table.numbers:
            return
        if text in table.actions:
            self._skip_action()
            return
        if table.single:
            self._long(word, begin, begin if begin in table.options else "-" + begin.lstrip("-"))
        elif begin.startswith("--") or begin in table.options:
            self._long(word, begin, begin)
        elif not table.bundles:
            self._unknown_option(word, begin)
        else:
            self._letters(word, begin)

    def _long(self, word: Token, begin: str, spelled: str) -> None:
        name, equals, value = spelled.partition("=")
        if not equals and not _is_known(word):
            raise self._unknown_argument(word)
        option = self.table.options.get(name)
        # A negated option is harmless, but the option must be known.
        if option is None and self.table.negates and name.startswith("--no-") and not equals:
            option = Option() if f"--{name[5:]}" in self.table.options else None
        if option is None and self.table.shortens and name.startswith("--"):
            name, option = self._shortened(name)
        if option is None or (equals and option.value == "none" and not option.danger):
            self._unknown_option(word, begin)
        elif equals or option.value != "needed":
            self._judge(name, option, value, self.at, _is_known(word))
        else:
            self._separate(name, option)

    def _shortened(self, name: str) -> tuple[str, Option | None]:
        """Return the option of an abbreviation: a dangerous one, if it could be one."""
        matching = {one: option for one, option in self.table.options.items() if one.startswith(name)}
        dangerous = next(((one, option) for one, option in matching.items() if option.danger), None)
        if dangerous is not None:
            return dangerous
        return next(iter(matching.items())) if len(matching) == 1 else (name, None)

    def _letters(self, word: Token, begin: str) -> None:
        for index in range(1, len(begin)):
            name, rest = f"-{begin[index]}", begin[index + 1 :]
            if name == self.table.module_option:
                self._module(word, rest)
                return
            option = self.table.options.get(name)
            if option is None:
                self._unknown_option(word, name if index > 1 else begin)
                return
            if option.value == "none":
                self._judge(name, option, "", self.at, known=True)
            elif option.value == "attached" or rest or not _is_known(word):
                self._judge(name, option, rest, self.at, _is_known(word))
                return
            else:
                self._separate(name, option)
                return
        self._require_known(word)

    def _separate(self, name: str, option: Option) -> None:
        """Read the value of an option from the next word."""
        if self.at >= len(self.words):
            return
        word = self.words[self.at]
        self.at += 1
        self._require_known(word)
        # For some programs this is the value, for others the next option, which would not be judged.
        if _OPTION_LIKE.match(word.value):
            self.danger(self.at, f"`{word.value}` stands where the value of `{name}` should")
        self._judge(name, option, word.value, self.at, known=True)

    def _judge(self, name: str, option: Option, value: str, head_words: int, known: bool) -> None:
        self.quiet = self.quiet or name in self.table.quiet
        if self.table.script and name in ("-e", "-f", "--expression", "--file", "--source"):
            self.has_script = True
            if name in ("-e", "--expression", "--source") and known:
                # A script may continue in the next piece: `-e 'print 1,' -e '2 | "cmd"'`.
                self.scripts.append(value)
                if is_plain_script(self.table.script, "\n".join(self.scripts)):
                    return
        if option.plain is not None and known and option.plain.fullmatch(value):
            self._place(option.plain, value)
            return
        if not option.danger:
            return
        if not known:
            raise _UnknownArgument(f"`{name}` can make `{self.name}` {option.danger}, and its value is not written out")
        self.danger(head_words, f"`{name}` makes `{self.name}` {option.danger}")

    def _unknown_option(self, word: Token, name: str) -> None:
        self._require_known(word)
        # It is unknown whether a value follows.
        self.danger(len(self.words), f"`{name}` is not an option of `{self.name}` that is known to be harmless")

    def _skip_action(self) -> None:
        """Skip the command of an action, up to its end; it is judged as a command of its own."""
        previous = ""
        while self.at < len(self.words):
            text = self.words[self.at].value
            self.at += 1
            if text == ";" or (text == "+" and previous == "{}"):
                return
            previous = text

    def _old_bundle(self) -> None:
        """Read letters without a dash, whose values are the next words in order: ``tar xzf a.tgz``."""
        word = self.words[1]
        self._require_known(word)
        if word.value.startswith("-"):
            return
        self.at = 2
        for letter in word.value:
            option = self.table.options.get(f"-{letter}")
            if option is None:
                self._unknown_option(word, letter)
            elif option.value == "needed":
                self._separate(letter, option)
            else:
                self._judge(letter, option, "", 2, known=True)

    # ------------------------------------------------------------ operands

    def _operand(self, word: Token) -> bool:
        """Judge an operand. Return whether the rest belongs to another program."""
        table = self.table
        self.at += 1
        if table.commands is not None:
            return self._command(word)
        if table.script in ("awk", "sed") and not self.has_script:
            self.has_script = True
            if not _is_known(word):
                raise _UnknownArgument(f"the script that `{self.name}` runs is not written out")
            if not is_plain_script(table.script, word.value):
                self.danger(self.at, f"its script could make `{self.name}` run a program or write a file")
            return False
        self.operands += 1
        self.first_operand = self.first_operand or self.at
        if table.stops and table.max_operands:
            # After it, even words that look like options are operands.
            self.operands += len(self.words) - self.at
        if table.max_operands is not None and self.operands > table.max_operands:
            head_words = self.command_end if table.enough else self.first_operand
            self.danger(head_words, f"`{self.name}` is made to {table.danger}")
        pattern = table.first if table.first is not None and self.operands == 1 else table.operand
        if pattern is not None:
            self._check(word, pattern)
        if self.operands == 1 and word.value in table.delegates:
            return not self._delegate(word.value)
        return table.stops

    def _command(self, word: Token) -> bool:
        """Continue with the table of a subcommand. An unknown one may be anything: an alias, a program."""
        self._require_known(word)
        found = (self.table.commands or {}).get(word.value)
        if found is None:
            # A rule must contain its name; the rest may be anything, but must be known.
            self.danger(self.at, f"`{word.value}` is not a subcommand of `{self.name}` that is known to be harmless")
            for later in self.words[self.at :]:
                self._require_known(later)
            return True
        self.table, self.name = found, f"{self.name} {word.value}"
        self.command_end = self.at
        if found.danger and found.max_operands is None:
            self.danger(len(self.words) if found.whole else self.at, f"`{self.name}` can {found.danger}")
        return found.whole

    def _module(self, word: Token, rest: str) -> None:
        """Continue with the table of a module that is run as a program."""
        if not rest and self.at < len(self.words):
            word = self.words[self.at]
            rest = word.value
            self.at += 1
        self._require_known(word)
        if not (rest in self.table.delegates and self._delegate(rest)):
            self.danger(self.at, f"`{self.name}` runs the module `{rest}`, of which nothing is known")
            self.at = len(self.words)

    def _delegate(self, name: str) -> bool:
        found = find_program(name)
        if found is not None:
            self.name, self.table = found
            self.operands = self.first_operand = 0
        return found is not None

    def _check(self, word: Token, pattern: re.Pattern[str]) -> None:
        """Match an operand with the pattern of harmless ones, by its start if that decides."""
        globbed = word.glob and UNKNOWN not in word.value and not word.several and not _DOTTED.search(word.value)
        # A file may be named `SHELL=cmd`; with a literal folder before it, it is certainly a path.
        globbed = globbed and (is_place(pattern) or "/" in _beginning(word))
        text = word.value if _is_known(word) or globbed else _beginning(word)
        if not _is_known(word) and not (text and (self.table.open_end or globbed)):
            raise self._unknown_argument(word)
        if not (pattern.match(text) if self.table.open_end else pattern.fullmatch(text)):
            self.danger(self.at, f"`{text}` can make `{self.name}` {self.table.operand_danger}")
        self._place(pattern, text)

    def _place(self, pattern: re.Pattern[str], text: str) -> None:
        if is_place(pattern) and text != "-":
            self.places.append(text)

    def _read_passed_arguments(self) -> None:
        """Read the arguments that are passed to a script, whose options are unknown."""
        if self.table.passes == "free":
            return
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            if self._may_be_option(word):
                self._require_known(word)
                self.danger(self.at, f"`{self.name}` hands `{word.value}` to a program whose options are not known")
