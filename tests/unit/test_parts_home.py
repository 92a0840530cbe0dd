"""Parts and metadata are dicts that anybody may have filled: only their homes know the keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import clew

SOURCE = Path(clew.__file__).parent

HOMES = {
    "transcript/part.py",
    "transcript/metadata.py",
    "transcript/turn.py",
    "transcript/fold_part.py",  # chunks into parts
    "transcript/replay.py",  # and parts into chunks
    "transcript/seen.py",  # chunks that have come before
}
EXCEPTIONS = {
    "session/api/sessions.py": "checks the metadata a client gives before there is a session",
    "interop/validate_import.py": "checks an import key by key, and refuses what readers would pass over",
    "interop/programs/": "formats of other programs, written and read key by key",
    "interop/session_file.py": "the rows of an export as JSON, which are no values yet",
    "providers/base.py": "what a provider says at the end of a call, which is no step yet",
    "store/files/": "formats of other programs, written and read key by key, with what does not fit beside it",
    "transcript/chunk_sanitizer.py": "fields of a chunk that nobody knows",
}

PART_KEYS = {
    "toolName",
    "toolCallId",
    "rawInput",
    "inputEncoding",
    "errorText",
    "preliminary",
    "providerMetadata",
    "callProviderMetadata",
    "resultProviderMetadata",
    "mediaType",
    "filename",
}
HOLDERS = {"data", "metadata"}
"""Attributes that hold such a dict: of a part, a turn, a step, a message, a session."""


def dug(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Each place where a key is read out of such a dict, or looked for in one."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=held, attr="get" | "setdefault" | "pop"), args=[ast.Constant(key), *_]
            ):
                pass
            case ast.Subscript(value=held, slice=ast.Constant(key), ctx=ast.Load()):
                pass
            case ast.Compare(left=ast.Constant(key), ops=[ast.In() | ast.NotIn()], comparators=[held]):
                pass
            case _:
                continue
        match held:
            case ast.Attribute(value=ast.Name(id="event")):
                continue  # a live event has data of its own, which its publisher fills
            case ast.Attribute(attr=name) | ast.Name(id=name):
                pass
            case _:
                name = ""
        is_holder = name == "part" or (name in HOLDERS and isinstance(held, ast.Attribute)) or name == "metadata"
        if isinstance(key, str) and (key in PART_KEYS or is_holder):
            yield node.lineno, f"{name or '…'}: {key}"


def test_only_their_homes_dig_in_parts_and_metadata() -> None:
    """Whoever wants a value asks the module that owns it; an exception has a reason."""
    found = {
        str(path.relative_to(SOURCE)): [f"{line} {what}" for line, what in dug(ast.parse(path.read_text()))]
        for path in sorted(SOURCE.rglob("*.py"))
        if path.relative_to(SOURCE).parts[0] not in ("testing", "starters")
    }
    digging = {name: places for name, places in found.items() if places and name not in HOMES}
    unneeded = [place for place in EXCEPTIONS if not any(name.startswith(place) for name in digging)]
    assert {name: places for name, places in digging.items() if not name.startswith(tuple(EXCEPTIONS))} == {}
    assert unneeded == []
