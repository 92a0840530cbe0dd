"""Partial JSON: the value of a JSON text that has not arrived completely.

Returns what a v6 client shows as the input of a tool call while its arguments are being written. The result equals the
client's for every text, broken ones included, because a viewer who watched the call and one who reloads must see the
same. A text that is complete JSON gives its value. Any other text is cut after the last position where it can be
closed, the open values are closed, and the result is parsed; if that fails there is no value (``UNSET``).

The position is found by a deliberately lenient scan: at each position it searches for the one token it expects and
skips everything else. Skipped text is either cut off or makes the parse fail. Some of its rules look odd and copy the
client's: a quote ends a key even after a backslash, a sign of an exponent ends a number, and anything after an array
element stays in the text.

It differs from the client where no store could hold the client's value: half a surrogate pair and U+0000 become U+FFFD,
a number that is not finite becomes null (as in any JSON a client writes), and a value nested too deeply is no value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn, TypeAlias

from msgspec import UNSET

from clew.transcript.value_check import MAX_DEPTH, clean_value

__all__ = ["parse_partial_json"]

_LITERALS: Final = {"t": "true", "f": "false", "n": "null"}
_VALUE_BEGINS: Final = re.compile(r'["tfn\-0-9{\[]')
_QUOTE: Final = re.compile('"')
_COLON: Final = re.compile(":")
_QUOTE_OR_BRACE: Final = re.compile(r'["}]')
_COMMA_OR_BRACE: Final = re.compile(r"[,}]")
_COMMA_OR_BRACKET: Final = re.compile(r"[,\]]")
_QUOTE_OR_ESCAPE: Final = re.compile(r'["\\]')
_NUMBER: Final = re.compile(r"[0-9eE.\-]*")
_FOUR_HEX: Final = re.compile(r"(?:[^0-9A-Fa-f]*[0-9A-Fa-f]){4}")

_Step: TypeAlias = "Callable[[], _Step] | None"


def parse_partial_json(text: str) -> Any:
    """Return the value of ``text``, complete or truncated; ``UNSET`` if it has none."""
    value = _parse(text)
    return value if value is not UNSET else _parse(_Walk(text).closed())


class _EndOfWalk(Exception):
    """The text ended, or is nested deeper than any value that can be stored."""


class _Walk:
    """One pass over a text that finds where to cut it and how to close it there.

    Each step searches for the token it expects and returns the next step; the nesting is tracked in ``_open``, never on
    Python's stack.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._keep = 0
        self._open: list[str] = []
        self._tail = ""

    def closed(self) -> str:
        """Return the text, cut and closed. It need not be JSON: the parser decides that."""
        step: _Step = self._value
        try:
            while step is not None:
                step = step()
        except _EndOfWalk:
            pass
        return self._text[: self._keep] + self._tail + "".join(reversed(self._open))

    def _find(self, pattern: re.Pattern[str]) -> str:
        """Advance past the next match and return its first character."""
        match = pattern.search(self._text, self._at)
        if match is None:
            raise _EndOfWalk
        self._at = match.end()
        return self._text[match.start()]

    def _value(self) -> _Step:
        char = self._find(_VALUE_BEGINS)
        if char != "-":
            self._keep = self._at
        return self._begin(char)

    def _begin(self, char: str) -> _Step:
        if char == '"':
            return self._string()
        if char == "{":
            return self._enter("}", self._first_member)
        if char == "[":
            return self._enter("]", self._first_element)
        return self._literal(_LITERALS[char]) if char in _LITERALS else self._number()

    def _enter(self, closer: str, inside: _Step) -> _Step:
        self._open.append(closer)
        if len(self._open) > MAX_DEPTH:
            raise _EndOfWalk
        return inside

    def _leave(self) -> _Step:
        self._open.pop()
        self._keep = self._at
        return self._after()

    def _after(self) -> _Step:
        """Return the step after a value, by its container. After the outermost value nothing matters."""
        if not self._open:
            return None
        return self._after_member if self._open[-1] == "}" else self._after_element

    def _first_member(self) -> _Step:
        return self._leave() if self._find(_QUOTE_OR_BRACE) == "}" else self._member()

    def _after_member(self) -> _Step:
        if self._find(_COMMA_OR_BRACE) == "}":
            return self._leave()
        self._find(_QUOTE)
        return self._member()

    def _member(self) -> _Step:
        """Advance from inside a key to its value. The member is included only once its value begins."""
        self._find(_QUOTE)
        self._find(_COLON)
        return self._value

    def _first_element(self) -> _Step:
        while self._at < len(self._text):
            char = self._text[self._at]
            self._at += 1
            if char == "]":
                return self._leave()
            # Characters that cannot begin a value are included too, so "[-" and "[x" have no value.
            self._keep = self._at
            if _VALUE_BEGINS.match(char):
                return self._begin(char)
        raise _EndOfWalk

    def _after_element(self) -> _Step:
        match = _COMMA_OR_BRACKET.search(self._text, self._at)
        end = len(self._text) if match is None else match.start()
        if end > self._at:
            self._keep = end
        if match is None:
            raise _EndOfWalk
        self._at = match.end()
        return self._leave() if match.group() == "]" else self._value

    def _string(self) -> _Step:
        self._tail = '"'
        while True:
            match = _QUOTE_OR_ESCAPE.search(self._text, self._at)
            self._keep = len(self._text) if match is None else match.start()
            if match is None:
                raise _EndOfWalk
            self._at = match.end()
            if match.group() == '"':
                break
            self._escape()
        self._tail = ""
        self._keep = self._at
        return self._after()

    def _escape(self) -> None:
        """Advance past an escape, from just after its backslash. A truncated escape is cut off."""
        end = self._at + 1
        if self._text[self._at : end] == "u":
            match = _FOUR_HEX.match(self._text, end)
            end = match.end() if match else len(self._text) + 1
        if end > len(self._text):
            raise _EndOfWalk
        self._at = self._keep = end

    def _number(self) -> _Step:
        match = _NUMBER.match(self._text, self._at)
        run = match.group() if match else ""
        length = len(run.rstrip("eE.-"))
        if length:
            self._keep = self._at + length
        self._at += len(run)
        return self._end_of_scalar()

    def _literal(self, whole: str) -> _Step:
        begin = self._at - 1
        length = 1
        while length < len(whole) and self._text[begin + length : begin + length + 1] == whole[length]:
            length += 1
        self._at = self._keep = begin + length
        if self._at == len(self._text):
            self._tail = whole[length:]
        return self._end_of_scalar()

    def _end_of_scalar(self) -> _Step:
        """Consume the character that ends a number or a literal, unless it belongs to the container."""
        char = self._text[self._at : self._at + 1]
        if not char:
            raise _EndOfWalk
        if not self._open or (char != "," and char != self._open[-1]):
            self._at += 1
        return self._after()


def _parse(text: str) -> Any:
    """Return the storable value of a complete JSON text, or ``UNSET``."""
    try:
        value = json.loads(text, parse_int=_integer, parse_float=_float, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return UNSET
    if type(value) not in (dict, list):
        return clean_value(value)[0]
    if _is_too_deep(text, value) or _is_hostile(text, value):
        return UNSET
    return clean_value(value)[0] if "\\u" in text or not text.isascii() else value


def _integer(digits: str) -> int | float | None:
    if len(digits) < 19:
        return int(digits)
    return int(digits) if len(digits) < 21 and -(2**63) <= int(digits) < 2**63 else _float(digits)


def _float(digits: str) -> float | None:
    number = float(digits)
    return number if math.isfinite(number) else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _is_too_deep(text: str, value: Any) -> bool:
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [inner for item in level for inner in _children(item) if isinstance(inner, dict | list)]
    return bool(level)


def _is_hostile(text: str, value: Any) -> bool:
    """Return whether the value names a JavaScript prototype, which the client refuses to build."""
    if "\\u" not in text and "__proto__" not in text and "constructor" not in text:
        return False
    rest = [value]
    while rest:
        item = rest.pop()
        if isinstance(item, dict):
            inner = item.get("constructor")
            if "__proto__" in item or (isinstance(inner, dict) and "prototype" in inner):
                return True
        rest.extend(inner for inner in _children(item) if isinstance(inner, dict | list))
    return False


def _children(item: Any) -> Iterable[Any]:
    return item.values() if isinstance(item, dict) else item
