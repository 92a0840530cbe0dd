"""What clew needs of others: what is imported is declared, what is declared is used, what is missing is named."""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import clew
from clew.fronts.cli import main
from clew.providers.pydantic_ai.wires import _LIBRARIES

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_AS = {
    "markdown-it-py": "markdown_it",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry.exporter",
    "opentelemetry-sdk": "opentelemetry.sdk",
    "opentelemetry-api": "opentelemetry",
    "pydantic-ai-slim": "pydantic_ai",
    "pyyaml": "yaml",
}
BROUGHT = {"anyio", "botocore", "google", "grpc", "httpx2", "psycopg_pool", "pydantic"}
"""Used where a library that is declared brings it along."""
WIRES = {extra: library for library, extra in _LIBRARIES.values() if extra != "models"}
"""The extras that are no more than a provider's own library."""


def modules(requirements: list[str]) -> set[str]:
    """What is imported of these packages; clew's own extras aside."""
    names = {re.split(r"[^A-Za-z0-9-]", one)[0] for one in requirements} - {"clew-sessions"}
    return {IMPORTED_AS.get(name, name.replace("-", "_")) for name in names}


def imported() -> set[str]:
    """Every module that the package imports, at its top or where it is used, with all above it; and what it names."""
    package = Path(clew.__file__).parent
    # A starter is a project of its own, and says what it needs.
    paths = (path for path in package.rglob("*.py") if not path.is_relative_to(package / "starters"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    found = set(re.findall(r"^\s*import (\w[\w.]*)(?: as \w+)?(?:  #.*)?$", text, re.MULTILINE))
    taken = re.findall(r"^\s*from (\w[\w.]*) import (\w*)", text, re.MULTILINE)
    found |= {f"{module}.{name}".rstrip(".") for module, name in taken}
    found |= set(re.findall(r"import_module\(\"([\w.]+)\"\)", text)) | {"secretscreen"} & set(
        re.findall(r'"(\w+)"', text)
    )
    return {".".join(names[:end]) for one in found for names in [one.split(".")] for end in range(1, len(names) + 1)}


def test_what_is_imported_is_declared_and_what_is_declared_is_imported() -> None:
    """Of the base and of every extra; so no extra is without code behind it."""
    used = imported()
    extras = {name: modules(needs) for name, needs in PROJECT["optional-dependencies"].items() if name != "all"}
    base = modules(PROJECT["dependencies"])
    unused = {
        name: sorted(needs - used) for name, needs in {"base": base, **extras}.items() if not needs <= used and needs
    }
    assert unused == {"server": ["httptools"]}  # uvicorn's, which is told to use it
    assert {name for name, needs in extras.items() if needs == {"pydantic_ai"}} == set(WIRES)
    declared = {name.partition(".")[0] for name in base.union(*extras.values())}
    others = {name.partition(".")[0] for name in used} - set(sys.stdlib_module_names) - {"clew"}
    wires = {library.partition(".")[0] for library, _ in _LIBRARIES.values()} | {"openai"}
    tests = {"hypothesis", "pytest"}  # of clew.testing, which says so itself
    own = {
        "landlock",
        "private_root",
        "compression",
    }  # next to the program that the sandbox runs; Python's own, from 3.14 on
    assert others - declared - wires - BROUGHT - tests - own == set()


def test_all_is_every_extra() -> None:
    """None is forgotten."""
    [everything] = PROJECT["optional-dependencies"]["all"]
    assert everything == f"clew-sessions[{','.join(sorted(set(PROJECT['optional-dependencies']) - {'all'}))}]"


def test_the_command_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, and the code of a call that cannot be made."""
    monkeypatch.delitem(sys.modules, "clew.fronts.cli.app", raising=False)
    monkeypatch.setitem(sys.modules, "cyclopts", None)
    with pytest.raises(SystemExit) as ended:
        main()
    told = 'clew: missing packages: run pip install "clew-sessions[cli]" (not_installed)\n'
    assert (ended.value.code, *capsys.readouterr()) == (2, "", told)


def test_the_server_without_its_packages_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a program that imports it, and did not ask for the extra."""
    for name in ("clew.server", "clew.fronts.http.app"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    with pytest.raises(ImportError, match=r'clew\.server needs extra packages: pip install "clew-sessions\[server\]"'):
        import_module("clew.server")
