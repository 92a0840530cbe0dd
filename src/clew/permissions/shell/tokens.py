"""The words and operators of a shell line, read by bash's own rules.

This is the first of two parsers: :mod:`clew.permissions.shell.parse` also uses a grammar, and both must agree. Quotes
are removed, so a word has the value the program would get, and text that only a running shell knows is marked as
unknown. A construct whose value or extent is uncertain is refused as a whole (:class:`Unreadable`): with a guess an
allow rule could cover something else.

Offsets count bytes of the line in UTF-8, as the grammar does. Inside this module a line therefore has one character
per byte, and a finished word is decoded to text.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

__all__ = ["MAX_LINE_CHARS", "UNKNOWN", "Level", "Token", "Unreadable", "read_tokens", "word_set"]

MAX_LINE_CHARS: Final = 64 * 1024
MAX_TOKENS: Final = 4_000
MAX_NESTING: Final = 20
UNKNOWN: Final = "\0"
"""Replaces text in a word that only the running shell knows; it cannot occur in a readable line."""

_OPERATORS: Final = (
    ";;&", "&>>", "<<<", "<<-",
    "&&", "&>", "||", "|&", ";;", ";&", "<<", "<&", "<>", ">>", ">&", ">|",
    "&", "|", ";", "<", ">", "(", ")",
)  # fmt: skip
_BREAKS: Final = frozenset(" \t\n;&|<>()")
_SIMPLE: Final = re.compile(r"\$(?:[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-])")
# A name alone, its length, or a name with a default or a cut whose operand is plain text. Everything else that
# braces can do (indirection, prompt expansion, subscripts, assignment) may run code.
_BRACED: Final = re.compile(
    r"\$\{(?:#?[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!]"
    r"|[A-Za-z_][A-Za-z0-9_]*(?::?[-+]|%%?|##?)[A-Za-z0-9_./*?: -]*)\}"
)
# Arithmetic evaluates the *contents* of variables as expressions, subscripts with substitutions in them included.
_SUM: Final = re.compile(r"\$\(\([0-9 +*/%-]*\)\)")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The grammar searches repeatedly for the end of an element's name, and of a pattern after `=~`: its time grows with
# the square of their number.
_MAX_ELEMENT: Final = 512
_MAX_PATTERNS: Final = 16
_ANSI: Final = re.compile(
    r"\\(?:[\\'\"?]|[abefnrtvE]|x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3})|[^\\']"
)
_ANSI_LETTERS: Final = dict(zip("abefnrtvE", "\a\b\x1b\f\n\r\t\v\x1b", strict=True))


def word_set(text: str) -> frozenset[str]:
    """Return the set of the words in ``text``, for tables of names."""
    return frozenset(text.split())


class Unreadable(Exception):
    """The meaning of the line, or of a part of it, is uncertain; the text says why."""


class Token(msgspec.Struct, frozen=True):
    """A word or an operator.

    ``value`` is a word without its quotes, with unknown parts as :data:`UNKNOWN`. ``bare``: nothing in it was quoted or
    expanded, so it may be a keyword. ``glob``: the shell may replace it by file names. ``odd`` is the reason why it is
    unusually written, though its value is known. ``home``: the unknown text at its start is the user's home folder.
    ``body`` is a here-document's text, on its operator. ``several``: the shell may turn it into several words or none.
    ``rooted``: it starts with a path that only the shell knows, such as a user's home or a descriptor.
    """

    kind: Literal["word", "operator", "newline"]
    start: int
    end: int
    value: str
    bare: bool = False
    glob: bool = False
    assigns: bool = False
    odd: str = ""
    body: str | None = None
    home: bool = False
    several: bool = False
    rooted: bool = False


Level = list[Token]
"""The tokens of one nesting level: the line itself, or the inside of one substitution."""


def read_tokens(line: str) -> list[Level]:
    """Return every level of ``line``, the line itself first. Raises :class:`Unreadable`."""
    if len(line) > MAX_LINE_CHARS:
        raise Unreadable(f"the line is longer than {MAX_LINE_CHARS} characters")
    for character in line:
        # These include blanks of other scripts, control characters, and marks for the writing direction.
        if character not in "\n\t" and not character.isprintable():
            raise Unreadable(f"the line holds a character that cannot be seen, U+{ord(character):04X}")
    reader = _Reader(line.encode().decode("latin-1"))
    reader.read_level(0, "", 0)
    if sum(map(len, reader.levels)) > MAX_TOKENS:
        raise Unreadable(f"the line has more than {MAX_TOKENS} words and operators")
    if sum(reader.text.startswith("=~", token.start) for level in reader.levels for token in level) > _MAX_PATTERNS:
        raise Unreadable("the line compares with too many patterns")
    return reader.levels


class _Pending(msgspec.Struct):
    """A here-document whose body begins after the next newline."""

    level: Level
    index: int
    delimiter: str
    quoted: bool
    tabs: bool


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.levels: list[Level] = []

    # ------------------------------------------------------------ tokens

    def read_level(self, at: int, closer: str, depth: int, end: int | None = None) -> int:
        """Read tokens from ``at`` to ``closer`` (``)``, or the end). Return the offset after it."""
        if depth > MAX_NESTING:
            raise Unreadable("substitutions are nested too deeply")
        text, end = self.text, len(self.text) if end is None else end
        level: Level = []
        self.levels.append(level)
        pending: list[_Pending] = []
        parens = 0
        while at < end:
            character = text[at]
            if character in " \t":
                at += 1
            elif character == "\\" and text.startswith("\\\n", at):
                # Bash removes the pair before it splits tokens, so the text around it could be joined.
                if at > 0 and text[at - 1] not in " \t\n":
                    raise Unreadable("a line goes on in the middle of a word")
                at += 2
            elif character == "#":
                newline = text.find("\n", at, end)
                at = end if newline < 0 else newline
            elif character == "\n":
                level.append(Token("newline", at, at + 1, "\n"))
                at = self._bodies(at + 1, pending, depth, end)
            elif character == ")" and closer and parens == 0:
                if pending:
                    raise Unreadable("a here-document ends with its substitution")
                return at + 1
            elif character in _BREAKS and not text.startswith(("<(", ">("), at):
                operator = next(o for o in _OPERATORS if text.startswith(o, at))
                if text.startswith("((", at):
                    raise Unreadable("an arithmetic command")
                parens += {"(": 1, ")": -1}.get(operator, 0)
                self._glue(level, at, operator)
                level.append(Token("operator", at, at + len(operator), operator))
                at += len(operator)
            else:
                at = self._word(level, at, depth, end)
                self._expect_body(level, pending)
        if closer:
            raise Unreadable("a substitution is not closed")
        if pending:
            raise Unreadable("a here-document is not closed")
        return at

    def _glue(self, level: Level, at: int, operator: str) -> None:
        """Refuse text directly before an operator that changes its meaning."""
        if not level or level[-1].end != at or level[-1].kind != "word":
            return
        word = level[-1]
        # `a=(…)` and `+(…)` contain commands or patterns where a word seemed to end; `name()` starts a function.
        if operator == "(" and not (word.bare and self.text.startswith("()", at)):
            raise Unreadable("a parenthesis inside a word (an array or a pattern)")
        if operator[0] in "<>" and word.value.startswith("{") and word.value.endswith("}"):
            raise Unreadable("a redirect into a variable")

    def _word(self, level: Level, start: int, depth: int, end: int) -> int:
        word = _Word(self, start, depth, end)
        at = word.read()
        raw = self.text[start:at]
        value = _text("".join(word.parts))
        assigns = _ASSIGNMENT.match(raw) is not None
        name = _NAME.match(raw)
        if name and raw.startswith("[", name.end()) and len(raw) > _MAX_ELEMENT:
            raise Unreadable("a long word that may name an element of an array")
        level.append(
            Token(
                "word", start, at, value, word.bare, word.glob, assigns, word.odd,
                home=word.home, several=word.several, rooted=word.rooted,
            )
        )  # fmt: skip
        return at

    # ------------------------------------------------------------ here-documents

    def _expect_body(self, level: Level, pending: list[_Pending]) -> None:
        if len(level) < 2 or level[-2].value not in ("<<", "<<-") or level[-2].kind != "operator":
            return
        word = level[-1]
        raw = self.text[word.start : word.end]
        plain = raw.strip("'\"")
        # Bash has its own rules for the quotes of a delimiter; only the common spellings are accepted.
        if not re.fullmatch(r"[A-Za-z0-9_.!-]+", plain) or raw not in (plain, f"'{plain}'", f'"{plain}"'):
            raise Unreadable("an unusual end mark of a here-document")
        pending.append(_Pending(level, len(level) - 2, plain, raw != plain, level[-2].value == "<<-"))

    def _bodies(self, at: int, pending: list[_Pending], depth: int, end: int) -> int:
        for document in pending:
            begin = at
            while True:
                if at >= end:
                    raise Unreadable("a here-document is not closed")
                newline = self.text.find("\n", at, end)
                stop = end if newline < 0 else newline
                shown = self.text[at:stop]
                if not document.quoted and shown.endswith("\\"):
                    raise Unreadable("a line goes on inside a here-document")
                if (shown.lstrip("\t") if document.tabs else shown) == document.delimiter:
                    break
                at = stop + 1
            body = self.text[begin:at] if document.quoted else self._expanded(begin, at, depth)
            operator = document.level[document.index]
            document.level[document.index] = msgspec.structs.replace(operator, body=_text(body))
            at = stop
        pending.clear()
        return at

    def _expanded(self, at: int, end: int, depth: int) -> str:
        """Return the body of a here-document that the shell expands."""
        inside = _Word(self, at, depth, end)
        while at < end:
            character = self.text[at]
            if character == "\\":
                # As the program receives it: the shell removes the backslash before these, but not before a quote.
                escaped = self.text[at + 1 : at + 2]
                inside.parts.append(escaped if escaped and escaped in "$`\\" else f"\\{escaped}")
                at += 2
            elif character == "$":
                at = inside.dollar(at, quoted=True)
            elif character == "`":
                at = inside.backticks(at)
            else:
                inside.parts.append(character)
                at += 1
        if at > end:
            raise Unreadable("a here-document ends inside an expansion")
        return "".join(inside.parts)


class _Word:
    """One word while it is read."""

    def __init__(self, reader: _Reader, start: int, depth: int, end: int) -> None:
        self.reader, self.text, self.start, self.depth, self.end = reader, reader.text, start, depth, end
        self.parts: list[str] = []
        self.bare = True
        self.glob = False
        self.odd = ""
        self.home = False
        self.several = False
        self.rooted = False
        self.name_end: int | None = None

    def read(self) -> int:
        at = self.start
        braces = False
        while at < self.end:
            character = self.text[at]
            if self.text.startswith(("<(", ">("), at):
                self.rooted = self.rooted or at == self.start
                self.unknown()
                at = self.reader.read_level(at + 2, ")", self.depth + 1, self.end)
                continue
            if character in _BREAKS:
                break
            if character == "'":
                at = self._single(at)
            elif character == '"':
                at = self._double(at)
            elif character == "$":
                at = self.dollar(at, quoted=False)
            elif character == "`":
                self.several = True
                at = self.backticks(at)
            elif character == "\\":
                if at + 1 >= self.end:
                    raise Unreadable("the line ends in a backslash")
                if self.text[at + 1] == "\n":
                    raise Unreadable("a line goes on in the middle of a word")
                self.bare = False
                self.parts.append(self.text[at + 1])
                at += 2
            else:
                if character == "~" and self._is_home(at):
                    self.home = self.home or at == self.start
                    self.rooted = self.rooted or at == self.start
                    self.unknown()
                elif character in "*?[":
                    self.glob = True
                    self.parts.append(character)
                else:
                    braces = braces or character == "{"
                    self.parts.append(character)
                at += 1
        if braces:
            inside = self.text[self.text.index("{", self.start) : at]
            if "," in inside or ".." in inside:
                self.odd = "braces that make several words"
                self.several = True
                self.rooted = False
                self.parts.clear()
                self.unknown()
        return at

    def _is_home(self, at: int) -> bool:
        """Read a tilde at the start of a word, or of a value or its part in a possible assignment."""
        if at == self.start:
            return True
        if self.text[at - 1] not in "=:":
            return False
        if self.name_end is None:
            name = _NAME.match(self.text, self.start, at)
            self.name_end = self.start if name is None else name.end()
        if self.name_end > self.start and self.text[self.name_end] == "[":
            raise Unreadable("a tilde in what may set an element of an array")
        return self.name_end > self.start and self.text.startswith(("=", "+="), self.name_end)

    def unknown(self) -> None:
        self.bare = False
        self.parts.append(UNKNOWN)

    def _single(self, at: int) -> int:
        close = self.text.find("'", at + 1, self.end)
        if close < 0:
            raise Unreadable("a quote is not closed")
        self.bare = False
        self.parts.append(self.text[at + 1 : close])
        return close + 1

    def _double(self, at: int) -> int:
        self.bare = False
        at += 1
        while at < self.end:
            character = self.text[at]
            if character == '"':
                return at + 1
            if character == "\\" and at + 1 < self.end and self.text[at + 1] in '$`"\\\n':
                if self.text[at + 1] == "\n":
                    # The pair is removed before expansion: a dollar before it applies to the text after it.
                    raise Unreadable("a line goes on inside quotes")
                self.parts.append(self.text[at + 1])
                at += 2
            elif character == "$":
                at = self.dollar(at, quoted=True)
            elif character == "`":
                at = self.backticks(at)
            else:
                self.parts.append(character)
                at += 1
        raise Unreadable("a quote is not closed")

    def dollar(self, at: int, *, quoted: bool) -> int:
        """Read the expansion that starts at a dollar sign."""
        text = self.text
        if text.startswith("$((", at):
            return self._match(_SUM, at, "arithmetic with more than numbers")
        # Without quotes the shell splits the value, and `$@` is several words even in quotes.
        splits = not quoted or text.startswith(("$@", "${@"), at)
        if text.startswith("$(", at):
            self.unknown()
            self.several = self.several or splits
            return self.reader.read_level(at + 2, ")", self.depth + 1, self.end)
        if text.startswith("${", at):
            self.several = self.several or splits
            return self._match(_BRACED, at, "an expansion that may do more than read a variable")
        if text.startswith("$[", at):
            raise Unreadable("arithmetic in its old form")
        if not quoted and text.startswith("$'", at):
            return self._ansi(at + 2)
        if not quoted and text.startswith('$"', at):
            raise Unreadable("text that is translated before it is used")
        if _SIMPLE.match(text, at, self.end):
            self.several = self.several or splits
            return self._match(_SIMPLE, at, "")
        self.bare = False
        self.parts.append("$")
        return at + 1

    def _match(self, pattern: re.Pattern[str], at: int, problem: str) -> int:
        found = pattern.match(self.text, at, self.end)
        if found is None:
            raise Unreadable(problem)
        self.home = self.home or (not self.parts and found.group() in ("$HOME", "${HOME}"))
        self.unknown()
        return found.end()

    def _ansi(self, at: int) -> int:
        self.bare = False
        self.odd = "quotes whose escapes the shell decodes"
        while at < self.end and self.text[at] != "'":
            found = _ANSI.match(self.text, at, self.end)
            if found is None:
                raise Unreadable("an unusual escape")
            self.parts.append(_decode(found.group()))
            at = found.end()
        if at >= self.end:
            raise Unreadable("a quote is not closed")
        return at + 1

    def backticks(self, at: int) -> int:
        close = self.text.find("`", at + 1, self.end)
        if close < 0:
            raise Unreadable("a substitution is not closed")
        # Inside, one level of backslashes is removed before the text is read as a line, so it is another line.
        if "\\" in self.text[at:close]:
            raise Unreadable("a backslash inside backticks, which the shell reads twice")
        self.unknown()
        self.reader.read_level(at + 1, "", self.depth + 1, close)
        return close + 1


def _text(held: str) -> str:
    """Decode text that has one character per byte."""

    try:
        return held.encode("latin-1").decode()
    except UnicodeDecodeError as error:
        raise Unreadable("escapes that make no text") from error


def _decode(escape: str) -> str:
    if not escape.startswith("\\"):
        return escape
    kind, rest = escape[1], escape[2:]
    if kind in _ANSI_LETTERS:
        return _ANSI_LETTERS[kind]
    if kind in "\\'\"?":
        return kind
    try:
        code = int(rest, 16) if kind in "xuU" else int(escape[1:], 8) & 0xFF
        character = chr(code)
        encoded = character.encode("latin-1" if kind not in "uU" else "utf-8").decode("latin-1")
    except (ValueError, OverflowError) as error:
        raise Unreadable("an escape that names no character") from error
    if code == 0:
        raise Unreadable("an escape that cuts the text short")
    return encoded
