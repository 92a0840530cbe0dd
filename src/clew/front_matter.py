"""Front matter: YAML between two lines ``---`` at the top of a Markdown file, as agents and skills have it.

Types are not guessed, so ``no`` stays text until a field defines its type. Anchors, aliases and tags are refused: they
are not needed, and enable attacks. Every value has its line, and an error names the file and the line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from clew.errors import InvalidInput

__all__ = ["Field", "FrontMatter", "Scalar", "Value", "fail", "parse_front_matter", "split_front_matter"]

FENCE: Final = "---"
_MAX_CHARS: Final = 64 * 1024
_MAX_DEPTH: Final = 8


class Scalar(msgspec.Struct, frozen=True):
    """One text and the line it stands on; the text is empty where a key has no value."""

    text: str
    line: int


Value: TypeAlias = "Scalar | tuple[Value, ...] | Mapping[str, Value]"


class Field(msgspec.Struct, frozen=True):
    """The value of one key at the top, and the line of the key."""

    line: int
    value: Value


class FrontMatter(msgspec.Struct, frozen=True):
    """The fields of a file's front matter, and the text below."""

    fields: Mapping[str, Field]
    body: str


def fail(path: str, line: int, what: str) -> InvalidInput:
    """Return the error for a line of a file, in the format that editors and terminals link."""
    return InvalidInput(f"{path}:{line}: {what}", path=path, line=line)


def split_front_matter(text: str, path: str) -> tuple[str, str]:
    """Return the text between the first two fences, and the text below them."""
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        raise fail(path, 1, f"the file must begin with a line {FENCE}")
    end = next((at for at, line in enumerate(lines) if at and line.rstrip() == FENCE), None)
    if end is None:
        raise fail(path, 1, f"the front matter that starts here is not closed with a line {FENCE}")
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :])


def parse_front_matter(text: str, path: str) -> FrontMatter:
    """Return the front matter and body of a file's text. Raises ``InvalidInput`` with file and line."""
    head, body = split_front_matter(text, path)
    if len(head) > _MAX_CHARS:
        raise fail(path, 1, f"the front matter is longer than {_MAX_CHARS} characters")
    for number, line in enumerate(head.split("\n"), 2):
        if not line.rstrip("\r").replace("\t", " ").isprintable():
            raise fail(path, number, "the line holds a character that cannot be seen")
    return FrontMatter(_Reader(path).fields(head), body.strip())


class _Reader:
    """A reader of YAML's events: they arrive in order, with their lines, before types are resolved."""

    def __init__(self, path: str) -> None:
        # Imported when a file is read: importing clew stays fast.
        import yaml

        self._yaml = yaml
        self._path = path
        self._depth = 0

    def fields(self, head: str) -> dict[str, Field]:
        yaml = self._yaml
        frame = (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
        loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
        try:
            # One event at a time: the depth is refused before the library has read all that is nested.
            events = (event for event in yaml.parse(head, Loader=loader) if not isinstance(event, frame))
            first = next(events, None)
            if first is not None and not isinstance(first, yaml.MappingStartEvent):
                raise fail(self._path, _line(first), "expected `key: value`")
            fields = {key.text: Field(key.line, value) for key, value in self._pairs(events)}
            if (more := next(events, None)) is not None:
                raise fail(self._path, _line(more), "a second document begins here")
            return fields
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = f"{error.problem or error.context}; a text with a colon, a quote or a sign belongs in quotes"
            raise fail(self._path, min(mark.line, head.count("\n")) + 2 if mark else 1, what) from error
        except yaml.YAMLError as error:
            raise fail(self._path, 1, f"the front matter is not YAML: {error}") from error

    def _pairs(self, events: Iterator[object]) -> Iterator[tuple[Scalar, Value]]:
        seen: set[str] = set()
        for event in events:
            if isinstance(event, self._yaml.MappingEndEvent):
                return
            key = self._value(event, events)
            if not isinstance(key, Scalar):
                raise fail(self._path, _line(event), "a key is a single text")
            if key.text in seen:
                raise fail(self._path, key.line, f"{key.text} is given twice")
            seen.add(key.text)
            yield key, self._value(next(events), events)

    def _value(self, event: object, events: Iterator[object]) -> Value:
        line = _line(event)
        if isinstance(event, self._yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
            raise fail(self._path, line, "anchors, aliases and tags are not read here; write the value in quotes")
        if isinstance(event, self._yaml.ScalarEvent):
            text = event.value.strip()
            if not text.replace("\n", " ").replace("\t", " ").isprintable():
                raise fail(self._path, line, "the text holds a character that cannot be seen")
            return Scalar(text, line)
        if self._depth == _MAX_DEPTH:
            raise fail(self._path, line, f"more than {_MAX_DEPTH} levels")
        self._depth += 1
        try:
            if isinstance(event, self._yaml.MappingStartEvent):
                return {key.text: value for key, value in self._pairs(events)}
            items: list[Value] = []
            for inner in events:
                if isinstance(inner, self._yaml.SequenceEndEvent):
                    break
                items.append(self._value(inner, events))
            return tuple(items)
        finally:
            self._depth -= 1


def _line(event: object) -> int:
    """Return the line in the file: YAML counts from 0, and the first line is the fence."""
    return int(event.start_mark.line) + 2  # type: ignore[attr-defined]
