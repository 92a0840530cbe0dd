"""Programs in ``examples/`` are built from public names alone: what they need, anybody may use.

A store or a provider of one's own needs some of those that the reference lists beside them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import clew
import clew.server

EXAMPLES = Path(__file__).parents[2] / "examples"
PUBLIC = {"clew": {*clew.__all__, "server"}, "clew.server": set(clew.server.__all__)}
UNSTABLE = (EXAMPLES.parent / "docs" / "reference" / "unstable.md").read_text("utf-8")
BESIDE = {
    name
    for module, names in re.findall(r"^\| `(clew[a-z_.]+)` \|.*\| ([^|]*) \|$", UNSTABLE, re.MULTILINE)
    for name in (module, *(f"{module}.{one}" for one in re.findall(r"`(\w+)`", names)))
}
"""Modules beyond the public names, and the names in them."""


def used(tree: ast.AST) -> Iterator[str]:
    """Every name of clew's that a program uses, dotted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Attribute):
            yield ast.unparse(node)


@pytest.mark.rule("EM-1")
@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.py")), ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_an_example_uses_public_names_alone(path: Path) -> None:
    """Names of ``clew`` and ``clew.server``; its tests use ``clew.testing`` too."""
    found = {name for name in used(ast.parse(path.read_text("utf-8"))) if name.split(".")[0] == "clew"}
    for name in found - {"clew", "clew.server"}:
        module, _, last = name.rpartition(".")
        is_testing = name.startswith("clew.testing.") and path.name.startswith("test_")
        is_beside = path.name.startswith("own_") and bool({module, name} & BESIDE)
        assert is_testing or is_beside or last in PUBLIC.get(module, ()), name
