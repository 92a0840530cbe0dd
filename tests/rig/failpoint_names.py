"""Finds the failpoints in the source, so that none can be added without a test."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import clew

__all__ = ["failpoint_names"]


def failpoint_names(package: Path | None = None) -> tuple[str, ...]:
    """Return the names in all calls ``failpoint("…")`` below ``package``, sorted, each once."""
    root = package or Path(clew.__file__).parent
    return tuple(sorted({name for path in root.rglob("*.py") for name in _names_in(path)}))


def _names_in(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if "failpoint(" not in text:
        return
    for node in ast.walk(ast.parse(text, filename=str(path))):
        match node:
            case ast.Call(func=ast.Name(id="failpoint"), args=[ast.Constant(value=str() as name)]):
                yield name
            case ast.Call(func=ast.Name(id="failpoint")):
                raise ValueError(f"{path}:{node.lineno}: the name of a failpoint must be a literal string")
            case _:
                pass
