"""The shape of the source: imports point down, names are nouns of the domain."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tools.house import Module, find_cycles, read_tree

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "clew"
VAGUE = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    """Every module of the package, measured."""
    return read_tree(PACKAGE)


@pytest.mark.rule("SR-1")
def test_imports_keep_to_the_contracts() -> None:
    """Layers, fronts, contracts and transports, as pyproject.toml declares them."""
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as main; main()"]
    result = subprocess.run([*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_module_at_the_top_stands_in_the_contract_of_layers() -> None:
    """A new one is given its layer in pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    [layers] = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    named = {name.split(".")[1] for layer in layers for name in re.findall(r"clew\.[\w.]+", layer)}
    there = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    assert there - named == {"__init__", "__main__"}


def test_every_large_folder_has_a_readme_whose_files_exist() -> None:
    """More than ten modules: what it owns, where to start reading, what it must not know."""
    folders = [path for path in PACKAGE.rglob("*") if path.is_dir() and "dist" not in path.parts]
    large = [path for path in folders if len([*path.glob("[!_]*.py")]) > 10]
    assert [path for path in large if not (path / "README.md").is_file()] == []
    for readme in (path / "README.md" for path in large):
        text = readme.read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 25, readme
        for name in re.findall(r"`([\w/]+\.(?:py|toml|sql))`", text):
            bases = (
                readme.parent,
                readme.parent.parent,
                PACKAGE,
                ROOT,
                *(path for path in readme.parent.iterdir() if path.is_dir()),
            )
            assert any((base / name).is_file() for base in bases), (readme, name)


@pytest.mark.slow
def test_no_modules_import_one_another_in_a_ring(modules: list[Module]) -> None:
    """Not even for type checkers alone, nor inside of functions: what goes in a ring is one thing in several files."""
    assert find_cycles(modules) == []


@pytest.mark.slow
def test_no_module_is_longer_than_can_be_read_at_once(modules: list[Module]) -> None:
    """500 lines, docstrings and all."""
    assert {module.name: module.lines for module in modules if module.lines > 500} == {}


@pytest.mark.slow
def test_no_class_has_more_public_methods_than_can_be_kept_in_mind(modules: list[Module]) -> None:
    """25; the facade alone, which every front uses, may have more."""
    large = {
        f"{module.name}.{name}": count
        for module in modules
        for name, count in module.public_methods.items()
        if count > 25 and not module.name.startswith("clew.session.api")
    }
    assert large == {}


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
