"""The shape of the source: imports point down, names are nouns of the domain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "clew"
VAGUE = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


@pytest.mark.rule("SR-1")
def test_imports_keep_to_the_contracts() -> None:
    """Layers, fronts, contracts and transports, as pyproject.toml declares them."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"]
    result = subprocess.run([*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


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
