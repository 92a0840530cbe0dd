"""Front matter: the lines between two ``---`` at the top of a Markdown file, in a small part of YAML.

::

    ---
    name: explore                     # text, until a field says what it must be
    tools: [read, "ls"]               # a list on one line
    rules:                            # or below, of texts or of maps
      - permission: write
        pattern: "*"
        action: deny
    ---
    The rest is the body.

Nothing else of YAML is read: no anchors, tags, block texts or deeper nesting, and no guessing of types, so that
``no`` stays a word. Whatever falls outside is an error that names the file and the line. What a field means is not
known here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from clew.errors import InvalidInput

__all__ = ["Field", "FrontMatter", "Scalar", "fail", "parse_front_matter"]

_FENCE: Final = "---"
_MAX_LINE: Final = 2_000
_KEY = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*):(?: +(.*))?")
_DASH = re.compile(r"( *)-(?: +(.*))?")
_DOUBLE: Final = r'"(?:[^"\\]|\\.)*+"'
_SINGLE: Final = r"'(?:[^']|'')*+'"
_QUOTED = re.compile(rf"({_DOUBLE}|{_SINGLE}) *+(?:#.*)?")
_MEMBER = re.compile(rf" *+({_DOUBLE}|{_SINGLE}|[^,\[\]{{}}\"'#]++) *+(?:,|(?=\]))")
_CLOSE = re.compile(r" *+\] *+(?:#.*)?")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*")
_SPECIAL: Final = tuple("&*!|>{}[]%@`?,")


class Scalar(msgspec.Struct, frozen=True):
    """One text and the line it stands on."""

    text: str
    line: int


class Field(msgspec.Struct, frozen=True):
    """The value of one key: a text, a list of texts, or a list of maps from keys to texts."""

    line: int
    value: Scalar | tuple[Scalar, ...] | tuple[Mapping[str, Scalar], ...]


class FrontMatter(msgspec.Struct, frozen=True):
    """What a file says about itself, and the text below."""

    fields: Mapping[str, Field]
    body: str


class _Line(msgspec.Struct, frozen=True):
    number: int
    indent: int
    text: str


def fail(path: str, line: int, what: str) -> InvalidInput:
    """The error for a line of a file, in the form editors and terminals can follow."""
    return InvalidInput(f"{path}:{line}: {what}", path=path, line=line)


def parse_front_matter(text: str, path: str) -> FrontMatter:
    """The front matter and body of a file's text. Raises ``InvalidInput`` with file and line."""
    lines = text.split("\n")
    if lines[0].rstrip() != _FENCE:
        raise fail(path, 1, f"the file must begin with a line {_FENCE}")
    end = next((at for at, line in enumerate(lines) if at and line.rstrip() == _FENCE), None)
    if end is None:
        raise fail(path, 1, f"the front matter opened here is never closed with a line {_FENCE}")
    return FrontMatter(_Reader(_lines(lines[1:end], path), path).fields(), "\n".join(lines[end + 1 :]).strip())


def _lines(raw: list[str], path: str) -> list[_Line]:
    """The lines that say something, with their place and indentation."""
    lines = []
    for number, text in enumerate(raw, 2):
        content = text.strip()
        if not content or content.startswith("#"):
            continue
        if len(text) > _MAX_LINE:
            raise fail(path, number, f"the line is longer than {_MAX_LINE} characters")
        if not content.isprintable():
            raise fail(path, number, "the line holds a tab or another character that cannot be seen; use spaces")
        indent = len(text) - len(text.lstrip())
        if text[:indent].strip(" "):
            raise fail(path, number, "indent with spaces")
        lines.append(_Line(number, indent, text.rstrip()))
    return lines


class _Reader:
    """Walks the lines once. The grammar has a fixed depth, so nothing here calls itself."""

    def __init__(self, lines: list[_Line], path: str) -> None:
        self._lines = lines
        self._path = path
        self._at = 0

    def fields(self) -> dict[str, Field]:
        fields: dict[str, Field] = {}
        while self._at < len(self._lines):
            line = self._take()
            if line.indent:
                raise self._fail(line, "the indentation does not fit the lines above")
            key, rest = self._key(line, line.text, fields)
            fields[key] = Field(line.number, self._value(line, rest))
        return fields

    def _value(self, line: _Line, rest: str) -> Scalar | tuple[Scalar, ...] | tuple[Mapping[str, Scalar], ...]:
        if rest.startswith("["):
            return self._flow(line, rest)
        if rest:
            return self._scalar(line, rest)
        return self._block(line)

    def _block(self, head: _Line) -> tuple[Scalar, ...] | tuple[Mapping[str, Scalar], ...]:
        """The list below a key."""
        scalars: list[Scalar] = []
        maps: list[Mapping[str, Scalar]] = []
        indent: int | None = None
        while (line := self._peek()) is not None and (dash := _DASH.fullmatch(line.text)):
            indent = line.indent if indent is None else indent
            if line.indent != indent:
                raise self._fail(line, "the entries of a list must stand below one another")
            self._at += 1
            content = (dash[2] or "").strip()
            if not content or content.startswith("#"):
                raise self._fail(line, "the entry is empty")
            if _KEY.fullmatch(content):
                maps.append(self._map(line, content, line.text.index(content)))
            else:
                scalars.append(self._scalar(line, content))
            if scalars and maps:
                raise self._fail(line, "a list holds either texts or maps")
        if indent is None:
            raise self._fail(head, "the key has no value; give it one or leave the key out")
        return tuple(maps) if maps else tuple(scalars)

    def _map(self, line: _Line, content: str, indent: int) -> Mapping[str, Scalar]:
        """One map of a list: its first key stands behind the dash, the others exactly below that."""
        entry: dict[str, Scalar] = {}
        key, rest = self._key(line, content, entry)
        entry[key] = self._scalar(line, rest)
        while (below := self._peek()) is not None and below.indent == indent:
            self._at += 1
            key, rest = self._key(below, below.text.strip(), entry)
            entry[key] = self._scalar(below, rest)
        return entry

    def _key(self, line: _Line, text: str, taken: Mapping[str, object]) -> tuple[str, str]:
        match = _KEY.fullmatch(text)
        if match is None:
            raise self._fail(line, "expected `key: value`")
        key, rest = match[1], (match[2] or "").strip()
        if key in taken:
            raise self._fail(line, f"{key} is given twice")
        return key, "" if rest.startswith("#") else rest

    def _scalar(self, line: _Line, text: str) -> Scalar:
        if text.startswith(('"', "'")):
            match = _QUOTED.fullmatch(text)
            if match is None:
                raise self._fail(line, "the quotes are not closed, or something stands behind them")
            return Scalar(self._unquote(line, match[1]), line.number)
        plain = _COMMENT.sub("", text, count=1).strip()
        if not plain:
            raise self._fail(line, "the key has no value; give it one or leave the key out")
        if plain.startswith((*_SPECIAL, "- ")) or ": " in plain or plain.endswith(":"):
            raise self._fail(line, f"write the value in quotes: {json.dumps(plain, ensure_ascii=False)}")
        return Scalar(plain, line.number)

    def _flow(self, line: _Line, text: str) -> tuple[Scalar, ...]:
        """A list on one line. A comma may stand before the closing bracket."""
        items: list[Scalar] = []
        at = 1
        while member := _MEMBER.match(text, at):
            items.append(self._scalar(line, member[1].strip()))
            at = member.end()
        if _CLOSE.fullmatch(text, at) is None:
            raise self._fail(line, "the list is not of the form [one, two]")
        return tuple(items)

    def _unquote(self, line: _Line, token: str) -> str:
        if token.startswith("'"):
            return token[1:-1].replace("''", "'")
        try:
            text = str(json.loads(token))
        except ValueError as error:
            raise self._fail(line, "the quoted text holds an escape that JSON does not know") from error
        if not text.isprintable():
            raise self._fail(line, "the quoted text holds a character that cannot be seen")
        return text

    def _take(self) -> _Line:
        self._at += 1
        return self._lines[self._at - 1]

    def _peek(self) -> _Line | None:
        return self._lines[self._at] if self._at < len(self._lines) else None

    def _fail(self, line: _Line, what: str) -> InvalidInput:
        return fail(self._path, line.number, what)
