"""The shape of the source: imports point down, names are nouns of the domain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tools.house import find_cycles, read_tree

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "clew"
VAGUE = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


@pytest.mark.rule("SR-1")
def test_imports_keep_to_the_contracts() -> None:
    """Layers, fronts, contracts and transports, as pyproject.toml declares them."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"]
    result = subprocess.run([*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_no_modules_import_one_another_in_a_ring() -> None:
    """Not even for type checkers alone, nor inside of functions: what goes in a ring is one thing in several files."""
    assert find_cycles(read_tree(PACKAGE)) == []


def test_no_module_has_a_name_that_says_nothing() -> None:
    """A module called `utils` has no subject of its own."""
    vague = [
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.name != "__pycache__" and path.stem.strip("_") in VAGUE
    ]
    assert vague == []


def test_the_package_says_it_is_typed() -> None:
    """Type checkers look for the marker file."""
    assert (PACKAGE / "py.typed").is_file()
